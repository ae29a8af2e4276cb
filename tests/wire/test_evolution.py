"""Every version ever published is still read, and read as what it said."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from tests.wire.samples import ROOT
from tidewheel.core.events import Event, Recorded, RunFailed
from tidewheel.core.mail import Mail, WorkerWelcome
from tidewheel.wire import catalog
from tidewheel.wire.catalog import Field, Version
from tidewheel.wire.codec import DecodeError, decode, decode_event
from tidewheel.wire.compiled import SchemaMismatchError, compile_reader
from tidewheel.wire.primitives import long_bytes, string_bytes
from tidewheel.wire.upcast import UPCASTS

GOLDEN = [
    json.loads(line) for line in (ROOT / "tests" / "wire" / "golden.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(
    "line", GOLDEN, ids=lambda line: f"{line['name'].removeprefix('tidewheel.')}-{line['fingerprint'][:4]}"
)
def test_a_golden_record_still_says_what_it_said(line: dict[str, Any]) -> None:
    record = bytes.fromhex(line["record"])
    version = catalog.versions()[bytes.fromhex(line["fingerprint"])]
    assert version.message is not None, "a message that was published once is read for ever"
    is_event = issubclass(version.message, Event)
    said = dict(line["fields"])
    message: msgspec.Struct
    if is_event:
        recorded = decode_event(record)
        message = recorded.event
        for name in catalog.ENVELOPE:
            value = said.pop(name)
            assert getattr(recorded, name) == (base64.b64decode(value) if name == "chain" else value)
    else:
        message = decode(record, partition=4)
    assert type(message) is version.message
    if line["fingerprint"] in UPCASTS:
        return  # its own test says what becomes of its fields
    said = said | ({"partition": 4} if issubclass(version.message, Mail) else {})
    for field in msgspec.structs.fields(version.message):
        value = msgspec.to_builtins(getattr(message, field.name))
        assert value == said.get(field.name, field.default), field.name


def test_every_published_version_has_golden_records() -> None:
    assert {line["fingerprint"] for line in GOLDEN} == {key.hex() for key in catalog.versions()}


def test_an_upcast_is_for_a_published_version() -> None:
    assert set(UPCASTS) <= {key.hex() for key in catalog.versions()}


# --- how versions are bridged, shown on versions that never were ---------------------------------------------------

TERM = Field("term_ms", "long")
BASE = (Field("receiver", "string"), Field("pool", "string"))
HEADER = b"\xc3\x01" + bytes(8)
WELCOME = HEADER + string_bytes("w1") + string_bytes("default")


def welcome(*fields: Field) -> Version:
    return Version(name="tidewheel.mail.WorkerWelcome", fingerprint=bytes(8), fields=fields, message=WorkerWelcome)


def test_a_field_that_is_gone_is_read_and_dropped() -> None:
    gone = Field("greeting", "string", nullable=True)
    read = compile_reader(welcome(*BASE, gone, TERM), 1000, None)
    expected = WorkerWelcome(receiver="w1", partition=2, pool="default", term_ms=60_000)
    assert read(WELCOME + b"\x02" + string_bytes("hello") + long_bytes(60_000), 2) == expected
    assert read(WELCOME + b"\x00" + long_bytes(60_000), 2) == expected


def test_a_field_that_came_later_has_its_default() -> None:
    fields = [Field(name, "string") for name in ("dag", "run_id")]
    version = Version(
        name="tidewheel.events.RunFailed",
        fingerprint=bytes(8),
        fields=(*fields, Field("at", "long"), Field("reason", "string"), *_envelope()),
        message=RunFailed,
    )
    body = string_bytes("d") + string_bytes("r") + long_bytes(5) + string_bytes("leaf failed")
    read = compile_reader(version, 1000, None)(HEADER + body + string_bytes("timer") + b"\2\2\2" + b"12345678", -1)
    event = RunFailed(at=5, dag="d", run_id="r", reason="leaf failed", actor="scheduler")
    assert read == Recorded(event=event, seq=1, shard_seq=1, writer=1, cause="timer", chain=b"12345678")


def _envelope() -> list[Field]:
    numbers = [Field(name, "long") for name in ("seq", "shard_seq", "writer")]
    return [Field("cause", "string"), *numbers, Field("chain", "fixed", size=8)]


def test_a_narrower_number_is_read_as_a_wider_one() -> None:
    read = compile_reader(welcome(*BASE, Field("term_ms", "int")), 1000, None)
    assert read(WELCOME + long_bytes(9), 2) == WorkerWelcome(receiver="w1", partition=2, pool="default", term_ms=9)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (BASE, "has no term_ms, and the class has no default for it"),
        ((*BASE, Field("term_ms", "long", nullable=True)), "term_ms is a long, the class wants"),
        ((*BASE, Field("term_ms", "string")), "term_ms is a string, the class wants"),
        ((*BASE, TERM, Field("tags", "nested")), "tags: a nested is beyond what our flat messages are made of"),
    ],
)
def test_what_defaults_cannot_bridge_is_a_mistake_of_ours(fields: tuple[Field, ...], says: str) -> None:
    with pytest.raises(SchemaMismatchError, match=says):
        compile_reader(welcome(*fields), 1000, None)


def test_an_upcast_bridges_the_rest() -> None:
    def upcast(fields: dict[str, object]) -> msgspec.Struct:
        return msgspec.convert({**fields, "term_ms": int(str(fields["term"]).removesuffix("s")) * 1000}, WorkerWelcome)

    read = compile_reader(welcome(*BASE, Field("term", "string")), 1000, upcast)
    expected = WorkerWelcome(receiver="w1", partition=2, pool="default", term_ms=60_000)
    assert read(WELCOME + string_bytes("60s"), 2) == expected


def test_an_upcast_that_cannot_make_sense_of_a_record_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def upcast(fields: dict[str, object]) -> msgspec.Struct:
        return msgspec.convert({**fields, "term_ms": "long"}, WorkerWelcome)

    line = next(line for line in GOLDEN if line["name"] == "tidewheel.mail.WorkerWelcome")
    monkeypatch.setitem(UPCASTS, line["fingerprint"], upcast)
    monkeypatch.setattr("tidewheel.wire.codec._readers", {})
    with pytest.raises(DecodeError, match="Expected `int`, got `str`") as caught:
        decode(bytes.fromhex(line["record"]))
    assert caught.value.code == "invalid"


def test_a_message_that_is_gone_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    line = next(line for line in GOLDEN if line["name"] == "tidewheel.mail.WorkerWelcome")
    key = bytes.fromhex(line["fingerprint"])
    version = msgspec.structs.replace(catalog.versions()[key], message=None)
    monkeypatch.setattr(catalog, "versions", lambda: {key: version})
    monkeypatch.setattr("tidewheel.wire.codec._readers", {})
    with pytest.raises(DecodeError, match=r"\(tidewheel.mail.WorkerWelcome\) is no longer read"):
        decode(bytes.fromhex(line["record"]))
