"""Decoding trusts nothing: whatever the bytes are, a valid message or a DecodeError that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.samples import EVENTS, MESSAGES, any_event, any_message, example, read_back, record_of
from tidewheel.core.commands import CancelRun, ConfigurePool, DeployDag, JoinPool, ReportFailure, StartRun
from tidewheel.core.events import Event, RunStarted, TaskStarted
from tidewheel.core.mail import WorkerUnknown
from tidewheel.wire.codec import DecodeError, decode, decode_event, encode
from tidewheel.wire.primitives import long_bytes, read_int, read_long
from tidewheel.wire.rules import (
    ID_LENGTH_MAX,
    INPUT_BYTES_MAX,
    INSTANT_MAX,
    INSTANT_MIN,
    RUN_ID_LENGTH_MAX,
    VALUE_BYTES_MAX,
)
from tidewheel.wire.triggers import decode_trigger

CANCEL = encode(CancelRun(dag="orders", run_id="r1", reason="no", actor="user:ann"))


def refused(data: bytes, code: str, says: str, read: Callable[[bytes], object] = decode) -> None:
    with pytest.raises(DecodeError, match=says) as caught:
        read(data)
    assert caught.value.code == code


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


# --- framing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MESSAGES + EVENTS, ids=lambda kind: kind.__name__)
def test_c121_cut_at_any_byte_it_is_refused_and_the_next_is_read(kind: type[msgspec.Struct]) -> None:
    good = record_of(example(kind))
    expected = read_back(good, kind)
    for end in range(len(good)):
        with pytest.raises(DecodeError) as caught:
            read_back(good[:end], kind)
        assert caught.value.code in ("truncated", "malformed"), (end, caught.value)
        assert read_back(good, kind) == expected


@pytest.mark.parametrize("kind", MESSAGES + EVENTS, ids=lambda kind: kind.__name__)
def test_p08_bytes_after_the_message_are_refused(kind: type[msgspec.Struct]) -> None:
    refused(record_of(example(kind)) + b"\0", "trailing", "1 bytes follow", lambda data: read_back(data, kind))


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", "truncated", "ends after 0"),
        (b"\xc3", "truncated", "ends after 1"),
        (b"{}", "foreign", "begins with c301 .*, this record with 7b7d"),
        (b"\0\0\0\0\x07ab", "foreign", "this record with 0000"),
        (b"\xc3\x02" + CANCEL[2:], "foreign", "this record with c302"),
        (CANCEL[:2] + b"12345678" + CANCEL[10:], "unknown_schema", "3132333435363738 is not known here"),
        (None, "foreign", "no value"),
    ],
)
def test_what_is_not_ours_is_refused(data: bytes, code: str, says: str) -> None:
    refused(data, code, says)
    refused(data, code, says, decode_event)


def test_events_and_messages_do_not_stand_in_for_each_other() -> None:
    event = record_of(RunStarted(at=1, dag="d", run_id="r"))
    refused(event, "unexpected", "tidewheel.events.RunStarted is an event")
    refused(CANCEL, "unexpected", "tidewheel.commands.CancelRun is no event", decode_event)


def test_a_value_over_its_limit_is_refused_whatever_it_holds() -> None:
    command = encode(DeployDag(dag="d", version="v", definition="{}"))
    refused(command + bytes(INPUT_BYTES_MAX), "oversized", f"at most {INPUT_BYTES_MAX} are allowed")
    event = record_of(RunStarted(at=1, dag="d", run_id="r"))
    refused(event + bytes(VALUE_BYTES_MAX), "oversized", f"at most {VALUE_BYTES_MAX} are allowed", decode_event)
    largest = DeployDag(dag="d", version="v", definition="x" * (INPUT_BYTES_MAX - len(command) - 1))
    assert decode(encode(largest)) == largest


# --- Avro --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        (b"\x0corders", b"\x0eorders", "malformed", "not UTF-8|negative|ends after"),  # a length one too long
        (b"\x0corders", b"\xff\xff\xff\xff\x0forders", "malformed", "length that ends before byte 15 is negative"),
        (b"\x0corders", b"\xfe\xff\xff\xff\x0forders", "truncated", "2147483647 bytes are announced from byte 15"),
        (b"\x0corders", b"\x8c\x00orders", "malformed", "not in its shortest form"),
        (b"\x0corders", b"\x8c\x80\x80\x00orders", "malformed", "not in its shortest form"),
        (b"\x0corders", b"\x0b" + b"orders", "malformed", "negative"),
        (b"\x0corders", b"\xff" * 9 + b"\x02orders", "malformed", "longer than 64 bits"),
        (b"\x0corders", b"\xff" * 10 + b"\x01orders", "malformed", "longer than 64 bits"),
        (b"\x0corders", b"\x0cord\xffrs", "malformed", "a string is not UTF-8"),
        (b"\x0corders", b"\x0c\xc0\xafders", "malformed", "a string is not UTF-8"),  # "/" in two bytes
        (b"\x0corders", b"\x0c\xed\xa0\x80ers", "malformed", "a string is not UTF-8"),  # half of a surrogate pair
    ],
)
def test_p12_broken_strings_are_refused(old: bytes, new: bytes, code: str, says: str) -> None:
    data = patched(CANCEL, old, new)
    with pytest.raises(DecodeError, match=says) as caught:
        decode(data)
    assert caught.value.code in (code, "truncated")


@pytest.mark.parametrize("branch", [b"\x01", b"\x04", b"\x0e", b"\x82\x00", b"\xff\xff\xff\xff\x0f"])
def test_p12_a_branch_that_a_union_does_not_have_is_refused(branch: bytes) -> None:
    present = encode(ConfigurePool(pool="default", slots=0x55))
    refused(patched(present, b"\x02\xaa\x01", branch + b"\xaa\x01"), "malformed", "null .0. or present .2.")


def test_a_boolean_is_0_or_1() -> None:
    data = encode(DeployDag(dag="d", version="v", definition="{}", source="S", paused=True))
    refused(patched(data, b"S\x01", b"S\x02"), "malformed", "boolean .0 or 1., but it is 2")


def test_an_int_has_32_bits() -> None:
    data = encode(JoinPool(pool="p", worker="w", slots=0x55, mail_partition=0))
    refused(patched(data, b"\xaa\x01", long_bytes(2**31)), "malformed", "longer than 32 bits")
    assert decode(patched(data, b"\xaa\x01", long_bytes(2**31 - 1))).slots == 2**31 - 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("bits", range(64))
def test_each_width_of_number_reads_as_it_was_written_and_not_overlong(bits: int) -> None:
    for number in (2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1):
        if not -(2**63) <= number < 2**63:
            continue
        data = long_bytes(number) + b"\xff"
        if data[0] < 128:
            assert len(data) == 2
            continue
        for _ in range(2):  # the second time from what was remembered of the first
            assert read_long(data, 1, data[0]) == (number, len(data) - 1)
        overlong = data[:-2] + bytes((data[-2] | 128, 0))
        with pytest.raises(DecodeError, match=r"not in its shortest form|longer than 64 bits"):
            read_long(overlong, 1, overlong[0])
        if not -(2**31) <= number < 2**31:
            with pytest.raises(DecodeError, match="longer than 32 bits"):
                read_int(data, 1, data[0])


# --- rules of the messages ---------------------------------------------------------------------------------------


def test_a_word_that_is_not_on_the_list_is_refused() -> None:
    start = encode(StartRun(dag="d", kind="api"))
    refused(patched(start, b"\x06api", b"\x06apx"), "invalid", "kind is 'apx'; allowed are manual, api, kafka")
    report = ReportFailure(
        dag="d", run_id="r", task="t", attempt=1, worker="w", started_at=1, ended_at=2, kind="signal"
    )
    refused(patched(encode(report), b"signal", b"sIgnal"), "invalid", "kind is 'sIgnal'; allowed are exit_code, signal")


@pytest.mark.parametrize("dag", ["", "Orders", "1orders", "_orders", "or-ders", "orders\n", "örders", "a/b", "a[0]"])
def test_an_id_from_outside_must_be_an_id(dag: str) -> None:
    refused(encode(CancelRun(dag=dag, run_id="r")), "invalid", "dag .* is no id")


def test_ids_have_a_longest() -> None:
    decode(encode(CancelRun(dag="a" * ID_LENGTH_MAX, run_id="r" * RUN_ID_LENGTH_MAX)))
    refused(encode(CancelRun(dag="a" * (ID_LENGTH_MAX + 1), run_id="r")), "invalid", "dag has 201 characters")
    refused(encode(CancelRun(dag="a", run_id="r" * (RUN_ID_LENGTH_MAX + 1))), "invalid", "run_id has 251 characters")


@pytest.mark.parametrize("run_id", ["a\nb", "a\0", "\x1b[31m", "\u202egnp.exe", "a\u2028b"])
def test_a_run_id_can_be_shown(run_id: str) -> None:
    refused(encode(CancelRun(dag="d", run_id=run_id)), "invalid", "run_id .* cannot be printed")


def test_only_a_start_may_leave_the_run_id_open() -> None:
    assert decode(encode(StartRun(dag="d"))) == StartRun(dag="d")
    refused(encode(CancelRun(dag="d", run_id="")), "invalid", "run_id has 0 characters")


def test_a_mapped_task_is_named_with_its_index() -> None:
    report = ReportFailure(
        dag="d", run_id="r", task="load[12]", attempt=1, worker="w", started_at=1, ended_at=2, kind="signal"
    )
    assert decode(encode(report)) == report
    refused(encode(msgspec.structs.replace(report, dag="load[12]")), "invalid", "dag 'load.12.' is no id")
    for task in ("load[]", "load[-1]", "load[1]x", "load[x]"):
        refused(encode(msgspec.structs.replace(report, task=task)), "invalid", "task .* is no id")


@pytest.mark.parametrize("at", [INSTANT_MIN - 1, INSTANT_MAX + 1, 2**63 - 1])
def test_a_time_from_outside_is_one_that_calendars_know(at: int) -> None:
    refused(encode(StartRun(dag="d", logical_date=at)), "invalid", "logical_date: -?[0-9]+ is outside the years 1000")
    report = ReportFailure(
        dag="d", run_id="r", task="t", attempt=1, worker="w", started_at=at, ended_at=2, kind="signal"
    )
    refused(encode(report), "invalid", "started_at: -?[0-9]+ is outside the years 1000 to 9998")


def test_a_count_from_outside_is_not_negative() -> None:
    refused(
        encode(JoinPool(pool="p", worker="w", slots=-1, mail_partition=0)), "invalid", "slots is -1; it counts from 0"
    )
    refused(encode(ConfigurePool(pool="p", slots=-1)), "invalid", "slots is -1; it counts from 0")


# --- anything ----------------------------------------------------------------------------------------------------


def check_outcome(data: bytes) -> None:
    for read in (decode, decode_event):
        try:
            read(data)
        except DecodeError as error:
            assert error.code and len(error.reason) > 10
    try:
        decode_trigger(data, topic="triggers", partition=0, offset=0, timestamp=0)
    except DecodeError as error:
        assert error.code and len(error.reason) > 10


@settings(max_examples=400, deadline=None)
@given(st.one_of(any_message, any_event), st.data())
def test_altered_records_give_a_message_or_a_decode_error(message: msgspec.Struct, data: st.DataObject) -> None:
    record = bytearray(record_of(message))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(10, len(record) - 1)) if len(record) > 10 else 0
        match data.draw(st.sampled_from(["set", "insert", "delete"])):
            case "set":
                record[position] = data.draw(st.sampled_from([0, 1, 2, 4, 127, 128, 255]) | st.integers(0, 255))
            case "insert":
                record[position:position] = data.draw(st.binary(min_size=1, max_size=12))
            case "delete" if len(record) > 11:
                del record[position]
    check_outcome(bytes(record))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(MESSAGES + EVENTS), st.binary(max_size=200))
def test_noise_behind_a_good_header_gives_a_message_or_a_decode_error(kind: type[msgspec.Struct], noise: bytes) -> None:
    check_outcome(record_of(example(kind))[:10] + noise)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100))
def test_noise_gives_a_decode_error(noise: bytes) -> None:
    check_outcome(noise)


@settings(max_examples=100, deadline=None)
@given(any_message)
def test_whatever_is_read_can_be_written_and_is_the_same(message: msgspec.Struct) -> None:
    """So there is one way only to say a thing, and a copy of a record is equal to it."""
    data = encode(message)
    assert encode(decode(data)) == data


def test_an_altered_event_that_still_reads_does_not_fit_the_chain() -> None:
    event = TaskStarted(
        at=1, dag="d", run_id="r", task="t", attempt=1, worker="w", started_at=1, expires_at=2, actor="worker:w"
    )
    data = record_of(event)
    altered = patched(data, b"worker:w", b"worker:v")
    assert isinstance(decode_event(altered).event, Event)
    assert decode_event(altered).event != event


def test_mail_is_for_any_receiver_name() -> None:
    """Ids are checked where they come in from outside, not in what shard owners wrote of them."""
    mail = WorkerUnknown(receiver="", partition=-1, pool="default")
    assert decode(encode(mail)) == mail
