"""Where schemas are found: every version of every message that was ever published, and the class each one is read into.

``schemas/published.jsonl`` has one line per published version, oldest first: its fingerprint (the 8 bytes of a record's
header, in hex) and its parsing canonical form. The last line of a name is what is written today. The ``.avsc``
files beside it are the same contract for people, with docs and defaults; a change there has no effect until
``tools/publish_schemas.py`` appends it, and the tests hold the two together. So nothing is parsed or hashed here, and
one small file is read, when first asked.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from tidewheel.core import commands, events, mail
from tidewheel.wire import messages

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: Folder of ``schemas/`` → classes of the messages in it, each with its schema in a file of its own.
FOLDERS: Final[dict[str, tuple[type[msgspec.Struct], ...]]] = {
    "commands": tuple(
        kind for kind in get_args(commands.DagCommand | commands.PoolCommand) if kind not in commands.TIMERS
    ),
    "events": get_args(events.AnyEvent),
    "mail": get_args(mail.AnyMail),
    "records": (messages.LogChunk, messages.DeadLetter, messages.TriggerRun),
    "snapshots": (messages.Snapshot, messages.Checkpoint),
}

#: Fields an event has on the wire beyond those of its class, at its end and in this order.
ENVELOPE: Final = ("cause", "seq", "shard_seq", "writer", "chain")


class Field(msgspec.Struct, frozen=True):
    """One field of a schema; ``kind`` is string, int, long, boolean, bytes or fixed, or else nothing we can read."""

    name: str
    kind: str
    nullable: bool = False
    #: Bytes of a fixed.
    size: int = 0


class Version(msgspec.Struct, frozen=True):
    """A published version of a message's schema; ``message`` is its class today, None if that is gone."""

    name: str
    fingerprint: bytes
    fields: tuple[Field, ...]
    message: type[msgspec.Struct] | None


class _Line(msgspec.Struct):
    fingerprint: str
    schema: _Record


class _Record(msgspec.Struct):
    name: str
    fields: list[_RecordField]


class _RecordField(msgspec.Struct):
    name: str
    type: object


def schema_folder() -> Traversable:
    """``schemas/`` of the checkout this package lies in, else the copy inside the installed package."""
    checkout = Path(__file__).resolve().parents[2] / "schemas"
    if (checkout / "published.jsonl").is_file():
        return checkout
    from importlib.resources import files  # 13 ms to import, for installed packages only

    return files("tidewheel") / "_schemas"


@functools.cache
def versions() -> dict[bytes, Version]:
    """All published versions by fingerprint, in the order of their publication."""
    classes = {f"tidewheel.{folder}.{kind.__name__}": kind for folder, kinds in FOLDERS.items() for kind in kinds}
    text = (schema_folder() / "published.jsonl").read_text(encoding="utf-8")
    lines = msgspec.json.Decoder(_Line).decode_lines(text)
    found = (
        Version(
            name=line.schema.name,
            fingerprint=bytes.fromhex(line.fingerprint),
            fields=tuple(_field(field) for field in line.schema.fields),
            message=classes.get(line.schema.name),
        )
        for line in lines
    )
    return {version.fingerprint: version for version in found}


@functools.cache
def current(message: type[msgspec.Struct]) -> Version | None:
    """The version that messages of this class are written in; None if the class does not travel."""
    return next((v for v in reversed(versions().values()) if v.message is message), None)


def writable(message: type[msgspec.Struct]) -> tuple[tuple[Version, Mapping[str, object]], ...]:
    """The versions a message of this class can be written in, newest first, each with the defaults of what it lacks.

    An older one serves a message that says nothing beyond it. What processes of the release before do not know is so
    written only once it is used, and old and new ones share a log. Snapshots are nobody else's to read.
    """
    newest = current(message)
    if newest is None:
        return ()
    found: list[tuple[Version, Mapping[str, object]]] = [(newest, {})]
    defaults = {field.name: field.default for field in msgspec.structs.fields(message)}
    for version in reversed(versions().values()):
        lacking = {field.name for field in newest.fields if field not in version.fields}
        fits = all(field in newest.fields for field in version.fields)
        if version.message is message and version is not newest and fits and message not in FOLDERS["snapshots"]:
            found.append((version, {name: defaults[name] for name in lacking}))
    return tuple(found)


def _field(field: _RecordField) -> Field:
    kind, nullable = field.type, False
    if isinstance(kind, list) and len(kind) == 2 and kind[0] == "null":
        kind, nullable = kind[1], True
    if isinstance(kind, dict) and kind.get("type") == "fixed":
        return Field(field.name, "fixed", nullable, int(kind["size"]))
    return Field(field.name, kind if isinstance(kind, str) else "nested", nullable)
