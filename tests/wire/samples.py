"""Messages made from their classes, for the tests of the wire: hypothesis strategies, and one fixed sample of each."""

from __future__ import annotations

import json
import string
import types
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import fastavro
import msgspec
from hypothesis import strategies as st

from tidewheel.core.events import AnyEvent, Event
from tidewheel.core.mail import Mail
from tidewheel.wire import catalog
from tidewheel.wire.codec import GENESIS, decode, decode_event, encode, encode_event
from tidewheel.wire.rules import INSTANT_MAX, INSTANT_MIN

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "schemas"

MESSAGES = [kind for folder, kinds in catalog.FOLDERS.items() for kind in kinds if folder != "events"]
EVENTS = list(catalog.FOLDERS["events"])

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=80)
_IDS = st.text(string.ascii_lowercase + string.digits + "_", max_size=20).map(lambda tail: f"a{tail}")
_PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=80)
_SPECIAL = {"dag": _IDS, "pool": _IDS, "task": _IDS, "run_id": _PRINTABLE, "worker": _PRINTABLE}
_TIMES = st.integers(INSTANT_MIN, INSTANT_MAX)
_COUNTS = st.integers(0, 2**31 - 1)
_INSTANTS = ("at", "started_at", "ended_at", "logical_date", "interval_start", "interval_end", "since", "until")
_OUTSIDE = dict.fromkeys(_INSTANTS, _TIMES) | dict.fromkeys(("attempt", "slots", "pool_slots", "width"), _COUNTS)
_NUMBERS = {
    "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(1_790_000_000_000, 1_800_000_000_000),
}


def wire_kinds(message: type[msgspec.Struct]) -> dict[str, str]:
    """Field → kind on the wire, by the current schema."""
    version = catalog.current(message)
    assert version is not None, f"{message.__name__} has no published schema"
    return {field.name: field.kind for field in version.fields}


def options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


@cache
def messages(message: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any valid message of a class."""
    kinds, hints = wire_kinds(message), get_type_hints(message)

    def values(name: str) -> st.SearchStrategy[Any]:
        parts: list[st.SearchStrategy[Any]] = []
        for option in options(hints[name]):
            if option is type(None):
                parts.append(st.none())
            elif get_origin(option) is Literal:
                parts.append(st.sampled_from(get_args(option)))
            elif option is int:
                parts.append(_OUTSIDE.get(name, _NUMBERS[kinds[name]]))
            else:
                of_type: dict[Any, st.SearchStrategy[Any]] = {
                    str: _SPECIAL.get(name, _TEXTS),
                    bool: st.booleans(),
                    bytes: st.binary(max_size=300),
                }
                parts.append(of_type[option])
        return st.one_of(parts)

    fields = {
        f.name: values(f.name) for f in msgspec.structs.fields(message) if f.name != "partition" or f.name in kinds
    }
    if issubclass(message, Mail):
        fields["partition"] = st.integers(0, 100)
    return st.builds(message, **fields)


any_message = st.sampled_from(MESSAGES).flatmap(messages)
any_event: st.SearchStrategy[AnyEvent] = st.sampled_from(EVENTS).flatmap(messages)


def envelope(event: Any, shard_seq: int = 7) -> dict[str, Any]:
    return {"event": event, "seq": 3, "shard_seq": shard_seq, "writer": 2, "cause": "commands/3/120000"}


def record_of(message: msgspec.Struct, previous: bytes = GENESIS) -> bytes:
    """The record of a message or event."""
    return encode_event(**envelope(message), previous=previous)[0] if isinstance(message, Event) else encode(message)


def read_back(data: bytes, like: type[msgspec.Struct]) -> Any:
    return decode_event(data) if issubclass(like, Event) else decode(data)


def example(message: type[msgspec.Struct]) -> Any:
    """One fixed message of a class, with every optional field present."""
    hints, kinds = get_type_hints(message), wire_kinds(message)
    values: dict[str, Any] = {}
    for position, field in enumerate(msgspec.structs.fields(message)):
        option = next(o for o in options(hints[field.name]) if o is not type(None))
        if get_origin(option) is Literal:
            values[field.name] = get_args(option)[-1]
        elif option is int:
            values[field.name] = 1_790_000_000_000 if kinds.get(field.name) == "long" else 100 + position
        else:
            text = field.name if field.name in _SPECIAL else f"{field.name} ü"
            values[field.name] = {str: text, bool: True, bytes: b"\xff" * 9}[option]
    return message(**values)


def schema_file(message: type[msgspec.Struct]) -> Path:
    folder = next(folder for folder, kinds in catalog.FOLDERS.items() if message in kinds)
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in message.__name__).lstrip("_")
    return SCHEMAS / folder / f"{name}.avsc"


@cache
def fastavro_schemas() -> dict[bytes, Any]:
    """Every published version as fastavro takes it, by the fingerprint in a record's header."""
    lines = map(json.loads, (SCHEMAS / "published.jsonl").read_text(encoding="utf-8").splitlines())
    return {bytes.fromhex(line["fingerprint"]): fastavro.parse_schema(line["schema"]) for line in lines}


@cache
def fastavro_schema(message: type[msgspec.Struct]) -> Any:
    """The schema file as fastavro takes it, times as plain numbers."""
    plain = schema_file(message).read_text(encoding="utf-8").replace(', "logicalType": "timestamp-millis"', "")
    return fastavro.parse_schema(json.loads(plain))
