"""The witness of switches: who was left out is skipped, who was not is not, and nobody goes before the word is said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core import events as e
from tidewheel.core.workflow import Branch, Run, Switch, Task, Workflow
from tidewheel.runtime.witness.dag import DagWitness
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.standing import STEPS_MS_MAX


def task(name: str, *needs: str, **more: Any) -> Task:
    return Task(id=name, action=Run(command="true"), needs=needs, **more)


ROUTE = Switch(branches=(Branch(if_="x", then=("a",)), Branch(then=("b", "below"))))
#: a ─► below: it is not left out when a is taken.
WORKFLOW = Workflow(
    id="d",
    tasks=(
        Task(id="s", action=ROUTE),
        task("a", "s"),
        task("b", "s", trigger_rule="always"),
        task("below", "s", "a", trigger_rule="all_done"),
    ),
)
WHERE: dict[str, Any] = {"dag": "d", "run_id": "r", "at": 1}


def on(kind: type[Any], name: str, attempt: int = 0, **more: Any) -> Any:
    return kind(**WHERE, task=name, attempt=attempt, **more)


def decided(output: str | None, **more: Any) -> Any:
    return on(e.TaskSucceeded, "s", worker="", started_at=1, ended_at=1, output=output, **more)


def queued(name: str) -> Any:
    return on(e.TaskQueued, name, 1, pool="default", pool_slots=1)


def skipped(name: str) -> Any:
    return on(e.TaskSkipped, name, reason="switch s took another")


FIRST, SECOND = '{"branch":0,"then":["a"]}', '{"branch":1,"then":["b","below"]}'


def judged(*events: Any) -> list[str]:
    """What the witness says of a run in which this happened, and of what is left open then."""
    findings = Findings()
    witness = DagWitness("d", findings)
    definition = msgspec.json.encode(WORKFLOW).decode()
    start = [
        e.DagDeployed(dag="d", at=1, version="v", definition=definition),
        e.RunCreated(**WHERE, version="v", kind="manual"),
        e.RunStarted(**WHERE),
    ]
    for event in (*start, *events):
        witness.apply(event)
    witness.check_progress(1 + STEPS_MS_MAX + 1)
    return [violation.message for violation in findings.violations]


@pytest.mark.parametrize(
    "events",
    [
        (decided(FIRST), queued("a"), skipped("b")),
        (decided(SECOND), skipped("a"), queued("b"), queued("below")),
    ],
)
def test_a_branch_that_goes_on_and_another_that_does_not_are_good(events: tuple[Any, ...]) -> None:
    assert judged(*events) == []


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((queued("b"),), "not by the word of every switch"),
        ((decided(FIRST), queued("a"), queued("b")), "not by the word of every switch"),
        ((decided(FIRST), queued("a"), skipped("b"), skipped("below")), "holds or still may"),
        ((decided(FIRST), skipped("a"), skipped("b")), "holds or still may"),
        ((decided(FIRST), queued("a")), "d/r/b is scheduled, though a switch left it out"),
        ((decided(SECOND), skipped("a"), queued("below")), "d/r/b is scheduled, though its rule always holds"),
        ((skipped("b"),), "says otherwise, or nothing yet"),
        ((decided(FIRST), on(e.TaskUpstreamFailed, "b", reason="x"), queued("a")), "says otherwise"),
        ((decided('{"branch":2,"then":[]}'),), "took a branch that it does not have"),
        ((decided('{"branch":0,"then":["b"]}'),), "took a branch that it does not have"),
        ((decided('{"branch":null,"then":[]}'),), "its last one needs no condition"),
        ((decided(None),), "does not say which branch it took"),
        ((decided(FIRST), decided(FIRST)), "the attempt is success"),
    ],
)
def test_another_word_than_the_switch_s_is_found(events: tuple[Any, ...], words: str) -> None:
    found = judged(*events)
    assert found
    assert words in "\n".join(found)
