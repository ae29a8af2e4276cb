"""Triggers must make sense: ids told apart, keys that tell records apart, inputs that a run can begin with."""

from __future__ import annotations

from typing import Any

from tidewheel.core.inputs import InputMistake, check_value
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.workflow import Input, InputType
from tidewheel.definition.assemble import is_computed
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import descend
from tidewheel.definition.shapes import Draft
from tidewheel.definition.templates import has_expression


def lint_triggers(draft: Draft, findings: Findings) -> None:
    """Note every mistake but those within expressions."""
    seen: set[str] = set()
    for trigger in triggers_of(draft):
        name = trigger.get("id")
        if name in seen:
            findings.add(descend(trigger.node, "id"), "duplicate_id", f"there is another trigger {name!r}")
        elif name is not None:
            seen.add(name)
        if isinstance(kafka := trigger.get("kafka"), Draft):
            _lint_kafka(kafka, findings)
            _lint_inputs(draft.get("inputs", {}), kafka, findings)


def triggers_of(draft: Draft) -> list[Draft]:
    """The triggers that could be read."""
    return [trigger for trigger in draft.get("triggers", ()) if trigger is not None]


def _lint_kafka(kafka: Draft, findings: Findings) -> None:
    if kafka.get("topic") in (".", ".."):
        findings.add(kafka.node.entries["topic"], "bad_value", f"{kafka['topic']!r} is no topic in Kafka")
    key = kafka.get("dedupe_key")
    if key is not None and not has_expression(key):
        meaning = "all records would have this one key: write an expression, such as ${{ event.value.id }}"
        findings.add(kafka.node.entries["dedupe_key"], "bad_value", meaning)


def _lint_inputs(declared: Draft | dict[str, Any], kafka: Draft, findings: Findings) -> None:
    given = kafka.get("inputs", {})
    # What could not be read is declared all the same.
    known = list(declared.node.entries) if isinstance(declared, Draft) else []
    for name, value in given.items():
        place = descend(kafka.node, "inputs", name)
        if name not in known:
            hint = did_you_mean(name, known) or ("" if known else ": this workflow declares no inputs")
            findings.add(place, "unknown_name", f"there is no input {name!r}{hint}")
        elif (kind := declared.get(name, {}).get("type")) is not None and not is_computed(value):
            try:
                check_value(_input(kind, declared[name]), value)
            except InputMistake as mistake:
                findings.add(place, "bad_value", f"input {name!r}: {mistake}")
    for name in known:
        if name in declared and "default" not in declared[name].node.entries and name not in given:
            meaning = f"input {name!r} has no default: give it under 'inputs' here"
            findings.add(kafka.node, "missing_key", meaning)


def _input(kind: InputType, written: Draft) -> Input:
    default = written.get("default")
    return Input(type=kind, default=default, required="default" not in written, enum=tuple(written.get("enum", ())))
