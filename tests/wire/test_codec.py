"""The codec: what goes in comes out, as fastavro would write it, and nothing that could not be read is written."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings

from tests.wire.samples import (
    EVENTS,
    MESSAGES,
    ROOT,
    any_event,
    any_message,
    envelope,
    example,
    fastavro_schemas,
    read_back,
    record_of,
)
from tidewheel.core.commands import CancelRun, ExpireLease, JoinPool, ReportFailure, ReportSuccess, StartRun
from tidewheel.core.events import AnyEvent, DagDeployed, RunStarted, TaskLeased
from tidewheel.core.mail import Mail, WorkerUnknown
from tidewheel.wire.codec import (
    GENESIS,
    EncodeError,
    chain_matches,
    decode,
    decode_event,
    encode,
    encode_event,
)
from tidewheel.wire.rules import INPUT_BYTES_MAX

#: What a caller without a type checker may pass.
WRONG: Any = None
SCHEDULED: Any = "scheduled"


def written_by_fastavro(message: msgspec.Struct, data: bytes, **beside: object) -> bytes:
    """The message's fields in the version that ``data`` is written in, which is the oldest that can say all of it."""
    record = io.BytesIO()
    values = {**msgspec.structs.asdict(message), **beside}
    fastavro.schemaless_writer(record, fastavro_schemas()[data[2:10]], values)
    return record.getvalue()


@settings(max_examples=300, deadline=None)
@given(any_message)
def test_a_message_survives_the_wire_and_is_what_fastavro_writes(message: msgspec.Struct) -> None:
    data = encode(message)
    partition = message.partition if isinstance(message, Mail) else -1
    assert decode(data, partition) == message
    assert data[10:] == written_by_fastavro(message, data)


@settings(max_examples=300, deadline=None)
@given(any_event)
def test_an_event_survives_the_wire_and_is_what_fastavro_writes(event: AnyEvent) -> None:
    place: dict[str, Any] = {"seq": 2**40, "shard_seq": 1, "writer": 300, "cause": "timer"}
    data, chain = encode_event(event, previous=GENESIS, **place)
    recorded = decode_event(data)
    assert recorded.event == event
    assert (recorded.seq, recorded.shard_seq, recorded.writer, recorded.cause) == tuple(place.values())
    assert recorded.chain == chain == data[-8:]
    assert data[10:] == written_by_fastavro(event, data, chain=chain, **place)


@pytest.mark.parametrize("kind", MESSAGES + EVENTS, ids=lambda kind: kind.__name__)
def test_every_message_travels(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    read = read_back(record_of(message), kind)
    if kind in EVENTS:
        read = read.event
    if issubclass(kind, Mail):
        assert read.partition == -1
        read = msgspec.structs.replace(read, partition=message.partition)
    assert read == message


def test_mail_learns_its_partition_from_where_it_was_read() -> None:
    data = encode(WorkerUnknown(receiver="w1", partition=5, pool="default"))
    assert decode(data, partition=9) == WorkerUnknown(receiver="w1", partition=9, pool="default")


def test_the_chain_ties_each_record_to_all_before_it() -> None:
    records, previous, chains = [], GENESIS, [GENESIS]
    for number in range(1, 4):
        event = RunStarted(at=number, dag="orders", run_id="r1")
        data, previous = encode_event(**envelope(event, shard_seq=number), previous=previous)
        records.append(data)
        chains.append(previous)
    assert all(chain_matches(chain, data) for chain, data in zip(chains, records, strict=False))
    assert not chain_matches(chains[0], records[1]), "a record is missing before this one"
    for position in range(len(records[1])):
        altered = bytearray(records[1])
        altered[position] ^= 1
        assert not chain_matches(chains[1], bytes(altered)), f"byte {position} was altered"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (JoinPool(pool="p", worker="w", slots=2**31, mail_partition=0), "2147483648 does not fit into 32 bits"),
        (StartRun(dag="d", logical_date=-(2**63) - 1), "-9223372036854775809 does not fit into 64 bits"),
        (CancelRun(dag="d", run_id="half of a pair: \ud800"), "CancelRun cannot be written: .*surrogates"),
        (CancelRun(dag="d", run_id=WRONG), "CancelRun cannot be written"),
        (JoinPool(pool="p", worker="w", slots=WRONG, mail_partition=0), "JoinPool cannot be written"),
        (StartRun(dag="d", kind=SCHEDULED), "kind is 'scheduled'; allowed are manual, api, kafka"),
        (StartRun(dag="d", inputs="x" * INPUT_BYTES_MAX), f"at most {INPUT_BYTES_MAX} are allowed"),
        (ExpireLease(dag="d", run_id="r", task="t", attempt=1), "ExpireLease does not travel by itself: it has no"),
        (RunStarted(at=1, dag="d", run_id="r"), "RunStarted does not travel by itself: an event is written by"),
    ],
)
def test_what_nobody_could_read_is_not_written(message: msgspec.Struct, says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        encode(message)


def test_an_event_that_nobody_could_read_is_not_written() -> None:
    with pytest.raises(EncodeError, match="at most 1048568 are allowed"):
        encode_event(**envelope(DagDeployed(at=1, dag="d", version="v", definition="x" * 2**20)), previous=GENESIS)
    with pytest.raises(EncodeError, match="TaskLeased cannot be written"):
        event = TaskLeased(
            at=1, dag="d", run_id="r", task="t", attempt=WRONG, worker="w", mail_partition=0, expires_at=1
        )
        encode_event(**envelope(event), previous=GENESIS)
    with pytest.raises(EncodeError, match="CancelRun is no event"):
        encode_event(**envelope(CancelRun(dag="d", run_id="r")), previous=GENESIS)


def test_the_event_that_repeats_the_largest_command_still_fits() -> None:
    report = ReportFailure(
        dag="d", run_id="r", task="t", attempt=1, worker="w", started_at=1, ended_at=2, kind="exception", message=""
    )
    room = INPUT_BYTES_MAX - len(encode(report)) - 4
    deployed = DagDeployed(at=1, dag="d" * 200, version="v" * 64, definition="x" * room, source="s" * 1000)
    assert decode_event(record_of(deployed)).event == deployed


def test_a_message_is_compact() -> None:
    report = ReportSuccess(
        dag="orders",
        run_id="r1",
        task="load",
        attempt=1,
        worker="w1",
        started_at=1_790_000_000_000,
        ended_at=1_790_000_000_009,
    )
    assert len(encode(report)) < 60


def test_importing_the_codec_is_quick() -> None:
    """The command line imports it: fastavro alone would take 0.1 s, and reading all schema files as long again."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, tidewheel.wire.codec; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "tidewheel.wire.codec" in loaded
    assert not {"fastavro", "importlib.resources", "asyncio"} & set(loaded)
