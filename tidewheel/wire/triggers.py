"""Public trigger records: JSON or Avro from anybody, to the command that starts the run.

One record is one run. Which run it is follows from the record alone (its ``run_id``, its ``id``, or else where it
lies): delivered twice, or published twice with an id, it starts nothing twice, and two records never become one.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

import msgspec

from tidewheel.core.commands import StartRun
from tidewheel.core.rules import INPUTS_BYTES_MAX
from tidewheel.wire.codec import decode
from tidewheel.wire.compiled import MARKER
from tidewheel.wire.faults import DecodeError
from tidewheel.wire.messages import TriggerRun
from tidewheel.wire.rules import (
    INPUT_BYTES_MAX,
    check_id,
    check_run_id,
    too_large,
)

_KEYS: Final = {
    "dag": "the id of the DAG (text)",
    "run_id": "the id of the run (text)",
    "id": "your own id of this request (text)",
    "inputs": "an object",
}
#: Deeper than any sensible input, and far from where a recursive reader gives up.
DEPTH_MAX: Final = 64


def decode_trigger(record_value: bytes, *, topic: str, partition: int, offset: int, timestamp: int) -> StartRun:
    """The command that a record on ``triggers`` asks for; ``DecodeError`` names the key and what is allowed there."""
    if not isinstance(record_value, bytes):
        raise DecodeError("foreign", "the record has no value; a trigger is a JSON object or an Avro TriggerRun")
    if len(record_value) > INPUT_BYTES_MAX:
        too_large(len(record_value), INPUT_BYTES_MAX)
    trigger = _from_avro(record_value) if record_value[:1] == MARKER[:1] else _from_json(record_value)
    return StartRun(
        dag=trigger.dag,
        run_id=_run_id(trigger, f"{topic}.{partition}.{offset}.{timestamp}", topic),
        kind="kafka",
        inputs=trigger.inputs,
        actor=f"kafka:{trigger.origin.split('/', 1)[0] or topic}",
        trigger=trigger.trigger,
        origin=trigger.origin,
    )


def _run_id(trigger: TriggerRun, place: str, topic: str) -> str:
    if trigger.run_id is not None:
        check_run_id("run_id", trigger.run_id)
        return trigger.run_id
    if trigger.id is None:
        # With the time of the record: in a log that took another's place, partitions and offsets begin anew.
        run_id = f"kafka__{place}"
        check_run_id("the run's id made of topic, partition, offset and time", run_id)
        return run_id
    check_run_id("id", trigger.id)
    if re.fullmatch(re.escape(topic) + r"\.\d+\.\d+(\.\d+)?", trigger.id):
        _refuse("id", f"{trigger.id!r} is how records without an id are named; choose another")
    run_id = f"kafka__{trigger.id}"
    check_run_id("id (with kafka__ in front)", run_id)
    return run_id


def _from_avro(data: bytes) -> TriggerRun:
    trigger = decode(data)
    if not isinstance(trigger, TriggerRun):
        raise DecodeError("unexpected", f"a {type(trigger).__name__} is no trigger; send a TriggerRun or a JSON object")
    inputs = _inputs(_parse(trigger.inputs, "inputs: the text"))
    for field, value in (("trigger", trigger.trigger), ("origin", trigger.origin)):
        if value:
            check_run_id(field, value)
    return msgspec.structs.replace(trigger, inputs=inputs)


def _from_json(data: bytes) -> TriggerRun:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError("malformed", f"the record is neither Avro nor JSON in UTF-8: {error}") from error
    if not text.lstrip(" \t\r\n").startswith("{"):
        hint = "; Confluent's framing is not read here" if text.startswith("\0") else ""
        raise DecodeError("foreign", f"a trigger is a JSON object or an Avro TriggerRun, single-object encoded{hint}")
    document = _parse(text, "the record")
    if not isinstance(document, dict):
        raise DecodeError("foreign", "a trigger is a JSON object")
    for key in document:
        if key not in _KEYS:
            raise DecodeError("invalid", f"key {key[:100]!r} is not known; allowed are {', '.join(_KEYS)}")
    if "dag" not in document:
        _refuse("dag", f"missing; give {_KEYS['dag']}")
    dag = _text(document, "dag")
    check_id("dag", dag or "")
    inputs = document.get("inputs")
    return TriggerRun(
        dag=dag or "",
        run_id=_text(document, "run_id"),
        id=_text(document, "id"),
        inputs="{}" if inputs is None else _inputs(inputs),
    )


def _parse(text: str, where: str) -> object:
    """Strict JSON: no key twice, no NaN, no number beyond a double, not too deep."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise DecodeError("invalid", f"{where} has the key {twice[:100]!r} twice")
        return found

    def constant(word: str) -> NoReturn:
        raise DecodeError("invalid", f"{where} has {word}, which is no JSON")

    def number(digits: str) -> float:
        if not math.isfinite(value := float(digits)):
            raise DecodeError("invalid", f"{where} has the number {digits[:100]}, which is too large")
        return value

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant, parse_float=number)
    except RecursionError as error:
        raise DecodeError("invalid", f"{where} is nested deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:
        raise DecodeError("malformed", f"{where} is no JSON: {error}") from error


def _inputs(value: object) -> str:
    """The inputs as compact JSON text."""
    if not isinstance(value, dict):
        _refuse("inputs", f"must be {_KEYS['inputs']}, not {_kind(value)}")
    _check_values(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        _refuse("inputs", "a text has half of a surrogate pair, which is no character")
    if size > INPUTS_BYTES_MAX:
        _refuse("inputs", f"{size} bytes, at most {INPUTS_BYTES_MAX} are kept; send an address of the data instead")
    return text


def _check_values(value: object) -> None:
    """Level by level, so that the check itself cannot run out of stack."""
    level, depth = [value], 0
    while level:
        depth += 1
        inner: list[object] = []
        for node in level:
            match node:
                case dict():
                    inner += node.keys()
                    inner += node.values()
                case list():
                    inner += node
                case str() if "\0" in node:
                    _refuse("inputs", "a text has the character U+0000, which databases cannot hold")
        if depth > DEPTH_MAX and any(isinstance(node, dict | list) for node in level):
            _refuse("inputs", f"nested deeper than {DEPTH_MAX} levels")
        level = inner


def _text(document: dict[str, object], key: str) -> str | None:
    value = document.get(key)
    if value is None and key != "dag":
        return None
    if not isinstance(value, str):
        _refuse(key, f"must be {_KEYS[key]}, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _refuse(key: str, what: str) -> NoReturn:
    raise DecodeError("invalid", f"{key}: {what}")
