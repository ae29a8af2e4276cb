"""What a record is to a trigger: nothing, a run with its id and inputs, or something that cannot be said.

Pure: the record and the definition alone decide, so the same record is the same run whoever reads it and whenever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.core.rules import INPUTS_BYTES_MAX
from tidewheel.core.scope import rfc3339
from tidewheel.core.workflow import Trigger
from tidewheel.log.interface import Record
from tidewheel.wire.messages import TriggerRun
from tidewheel.wire.rules import RUN_ID_LENGTH_MAX

#: How the ids of these runs begin; the trigger's id follows, a colon, and the record's key.
TRIGGERED: Final = "trigger__"
#: A key that makes no run id (too long, or not printable) is replaced by a digest of it.
_DIGEST: Final = "sha256-"


class CannotJudge(Exception):
    """This record cannot be judged by this trigger. ``code`` is the dead letter's."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Happening(msgspec.Struct, frozen=True):
    """A record as expressions know it by ``event``, and what an expression that fails should know of it."""

    names: Mapping[str, Any]
    lacking: str


def happening(record: Record) -> Happening:
    """The record as ``event``.

    ``value`` is the decoded JSON; what is no JSON is the text itself, and what is no text is not there at all. So are
    a ``key`` and ``headers`` that are no text: an expression that needs them fails, and no two keys become one.
    """
    names: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": rfc3339(record.timestamp),
        "headers": {name: text for name, value in record.headers if (text := _text(value)) is not None},
    }
    lacking = []
    if record.key is None or (key := _text(record.key)) is not None:
        names["key"] = None if record.key is None else key
    else:
        lacking.append("the record's key is no text in UTF-8")
    try:
        names["value"], remark = (None, "") if record.value is None else _value(record.value)
    except ValueError as error:
        remark = f"the record's value {error}"
    if remark:
        lacking.append(remark)
    return Happening(names, "; ".join(lacking))


def run_for(dag: str, trigger: Trigger, record: Record, seen: Happening, evaluator: Evaluator) -> TriggerRun | None:
    """The run that the record asks for by this trigger; None: the filter does not take it. Raises ``CannotJudge``."""
    scope = Scope(inputs={}, run={}, task=lambda name: {}, names={"event": seen.names})
    kafka = trigger.kafka
    try:
        if kafka.filter is not None and not evaluator.condition(kafka.filter, scope):
            return None
        key = _place(record) if kafka.dedupe_key is None else _key(evaluator.render(kafka.dedupe_key, scope))
        inputs = msgspec.json.encode(evaluator.render(kafka.inputs, scope))
    except ExpressionError as error:
        raise CannotJudge("expression", f"{error}{f' ({seen.lacking})' if seen.lacking else ''}") from error
    if len(inputs) > INPUTS_BYTES_MAX:
        raise CannotJudge("invalid", f"the inputs have {len(inputs):,} bytes; the limit is {INPUTS_BYTES_MAX:,}")
    return TriggerRun(
        dag=dag,
        run_id=run_id(trigger.id, key),
        inputs=inputs.decode(),
        trigger=trigger.id,
        origin=f"{record.topic}/{record.partition}/{record.offset}",
    )


def run_id(trigger: str, key: str) -> str:
    """The id of the run for the records with this key. Two keys of one trigger never share one."""
    whole = f"{TRIGGERED}{trigger}:{key}"
    if len(whole) <= RUN_ID_LENGTH_MAX and whole.isprintable() and not key.startswith(_DIGEST):
        return whole
    return f"{TRIGGERED}{trigger}:{_DIGEST}{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _place(record: Record) -> str:
    """With the time: in a topic that was made anew, offsets begin anew."""
    return f"{record.topic}.{record.partition}.{record.offset}.{record.timestamp}"


def _key(value: Any) -> str:
    if isinstance(value, bool | int | float) or (isinstance(value, str) and value):
        return value if isinstance(value, str) else json.dumps(value)
    shown = "empty" if value == "" else "null" if value is None else "a list or a mapping"
    raise CannotJudge("invalid", f"the dedupe_key is {shown}: it must be a text, a number or a boolean")


def _value(value: bytes) -> tuple[Any, str]:
    try:
        return msgspec.json.decode(value), ""
    except RecursionError:
        raise ValueError("is JSON nested too deep") from None
    except msgspec.DecodeError:
        text = _text(value)
        if text is None:
            raise ValueError("is neither JSON nor text in UTF-8") from None
        return text, "the record's value is no JSON: event.value is its text"


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
