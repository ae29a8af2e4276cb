"""From a published schema to the two functions that write and read it, as generated Python source.

Our messages are flat: strings, numbers, booleans, bytes, fixed, each perhaps null. Unrolled per field that is some
lines of plain Python which write from and read into the message's class: about twice as fast as fastavro with the
dicts around it, and strict where that lets pass. fastavro is the oracle in the tests.

Reading resolves an old version to today's class as Avro does: by field name, defaults for what it lacks, dropping what
is no longer there. What that cannot bridge is in ``wire.upcast``.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from tidewheel.core.events import Event, Recorded
from tidewheel.core.mail import Mail
from tidewheel.wire import primitives, rules
from tidewheel.wire.catalog import ENVELOPE, Field, Version
from tidewheel.wire.primitives import SMALL_MAX
from tidewheel.wire.upcast import Upcast

MARKER: Final = b"\xc3\x01"
#: Marker and fingerprint.
HEADER_SIZE: Final = 10

Message = msgspec.Struct
Writer = Callable[[Message], bytes]
#: message, cause, seq, shard_seq, writer → the record without its chain
EventWriter = Callable[[Message, str, int, int, int], bytes]
#: data, partition (for mail) → message (an event comes as ``Recorded``)
Reader = Callable[[bytes, int], Message]

_WIRE_KINDS: Final[dict[type, tuple[str, ...]]] = {
    str: ("string",),
    int: ("int", "long"),
    bool: ("boolean",),
    bytes: ("bytes", "fixed"),
}


class SchemaMismatchError(Exception):
    """A published version that cannot be read into today's class and has no upcast: our mistake, found by the tests."""


def compile_writer(version: Version, limit: int) -> Writer:
    """The function that writes a message other than an event."""
    return cast(Writer, _compile(_writer_source(version, (), limit), version))


def compile_event_writer(version: Version, limit: int) -> EventWriter:
    """The function that writes an event up to, and without, its chain."""
    return cast(EventWriter, _compile(_writer_source(version, ENVELOPE[:-1], limit), version))


def compile_reader(version: Version, limit: int, upcast: Upcast | None) -> Reader:
    """The function that reads records of this version into today's class, through ``upcast`` if there is one."""
    lines = ["def read(data, partition):", "    end = len(data)", f"    if end > {limit}: too_large(end, {limit})"]
    lines.append(f"    p = {HEADER_SIZE}")
    for field in version.fields:
        lines += _read_field(field)
    lines.append("    if p != end: wrong_end(p, end)")
    if upcast is None:
        lines += [
            f"    if {word} not in WORDS_{word}: bad_word({word!r}, {word}, WORDS_{word})" for word in _words(version)
        ]
        lines += rules.checks(version.name, [field.name for field in version.fields])
    lines.append(f"    return {_result(version, upcast is not None)}")
    return cast(Reader, _compile("\n".join(lines), version, upcast))


def _compile(source: str, version: Version, upcast: Upcast | None = None) -> object:
    namespace: dict[str, object] = {
        **vars(primitives),
        **vars(rules),
        **{f"WORDS_{field}": words for field, words in _words(version).items()},
        "HEADER": MARKER + version.fingerprint,
        "Message": version.message,
        "Recorded": Recorded,
        "join": b"".join,
        "upcast": upcast,
    }
    exec(compile(source, f"<wire {version.name}>", "exec"), namespace)
    return namespace["read" if source.startswith("def read") else "write"]


def _words(version: Version) -> dict[str, tuple[str, ...]]:
    """Fields that allow certain words only, and those."""
    hints = get_type_hints(version.message) if version.message else {}
    names = [field.name for field in version.fields]
    return {name: get_args(hints[name]) for name in names if get_origin(hints.get(name)) is Literal}


# --- writing -----------------------------------------------------------------------------------------------------


def _writer_source(version: Version, envelope: Sequence[str], limit: int) -> str:
    lines, parts = [f"def write({', '.join(['struct', *envelope])}):"], ["HEADER"]
    for field in version.fields:
        if field.name == ENVELOPE[-1] and envelope:
            continue
        if field.name not in envelope:
            lines.append(f"    {field.name} = struct.{field.name}")
        setup, written = _write_field(field)
        lines += setup
        parts += written
    lines += [
        f"    if {word} not in WORDS_{word}: unwritable_word({word!r}, {word}, WORDS_{word})"
        for word in _words(version)
    ]
    lines += [
        f"    data = join(({', '.join(parts)},))",
        f"    if len(data) > {limit}: unwritable_size(len(data), {limit})",
    ]
    return "\n".join([*lines, "    return data"])


def _write_field(field: Field) -> tuple[list[str], list[str]]:
    """Statements, and expressions whose bytes follow one another in the record."""
    name = field.name
    raw = f"{name}_raw"
    match field.kind, field.nullable:
        case "string", False:
            return [f"    {raw} = {name}.encode()"], [_size_of(raw), raw]
        case "bytes", False:
            return [], [_size_of(name), name]
        case "boolean", False:
            return [], [f"(b'\\1' if {name} else b'\\0')"]
        case ("int" | "long") as kind, False:
            return [], [f"(SMALL[{name}] if 0 <= {name} <= {SMALL_MAX} else {kind}_bytes({name}))"]
        case ("string" | "bytes" | "int" | "long") as kind, True:
            return [], [f"(b'\\0' if {name} is None else b'\\2' + {kind}_bytes({name}))"]
    raise SchemaMismatchError(f"{name}: a {field.kind} is beyond what our flat messages are made of")


def _size_of(raw: str) -> str:
    return f"(SMALL[len({raw})] if len({raw}) <= {SMALL_MAX} else long_bytes(len({raw})))"


# --- reading -----------------------------------------------------------------------------------------------------


def _read_field(field: Field) -> list[str]:
    lines = _read_value(field)
    if not field.nullable:
        return lines
    choose = [
        "    n = data[p]; p += 1",
        f"    if n == 0: {field.name} = None",
        "    elif n != 2: bad_branch(p, n)",
        "    else:",
    ]
    return choose + ["    " + line for line in lines]


def _read_value(field: Field) -> list[str]:
    name = field.name
    match field.kind:
        case "string" | "bytes":
            # One byte and even: a length up to 63. A slice that reaches beyond the end is found out by the last check.
            text = ".decode()" if field.kind == "string" else ""
            return [
                "    n = data[p]; p += 1",
                "    if n & 129: p, q = read_size(data, p, n)",
                "    else: q = p + (n >> 1)",
                f"    {name} = data[p:q]{text}; p = q",
            ]
        case ("int" | "long") as kind:
            return [
                "    n = data[p]; p += 1",
                f"    if n > 127: {name}, p = read_{kind}(data, p, n)",
                f"    else: {name} = (n >> 1) ^ -(n & 1)",
            ]
        case "boolean":
            return ["    n = data[p]; p += 1", "    if n > 1: bad_boolean(p, n)", f"    {name} = n == 1"]
        case "fixed":
            return [f"    {name} = data[p : p + {field.size}]; p += {field.size}"]
    raise SchemaMismatchError(f"{name}: a {field.kind} is beyond what our flat messages are made of")


def _result(version: Version, upcast: bool) -> str:
    message = version.message
    if message is None:
        raise SchemaMismatchError(f"{version.name} is read into no class of today")
    is_event, is_mail = issubclass(message, Event), issubclass(message, Mail)
    own = {field.name: field for field in version.fields if not (is_event and field.name in ENVELOPE)}
    if upcast:
        pairs = [f"{name!r}: {name}" for name in own] + (["'partition': partition"] if is_mail else [])
        result = f"upcast({{{', '.join(pairs)}}})"
    else:
        result = (
            f"Message({', '.join(_arguments(message, own, version.name))}{', partition=partition' if is_mail else ''})"
        )
    return f"Recorded(event={result}, {', '.join(f'{name}={name}' for name in ENVELOPE)})" if is_event else result


def _arguments(message: type[Message], written: Mapping[str, Field], schema: str) -> list[str]:
    """Avro's schema resolution for flat records, decided once."""
    hints = get_type_hints(message)
    arguments = []
    for field in msgspec.structs.fields(message):
        wire = written.get(field.name)
        if wire is None:
            if field.required and not (issubclass(message, Mail) and field.name == "partition"):
                raise SchemaMismatchError(f"{schema} has no {field.name}, and the class has no default for it")
        elif not _fits(wire, hints[field.name]):
            raise SchemaMismatchError(f"{schema}.{field.name} is a {wire.kind}, the class wants {hints[field.name]}")
        else:
            arguments.append(f"{field.name}={field.name}")
    return arguments


def _fits(wire: Field, hint: object) -> bool:
    options = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    if wire.nullable and type(None) not in options:
        return False
    return any(
        wire.kind in _WIRE_KINDS.get(str if get_origin(option) is Literal else cast(type, option), ())
        for option in options
    )
