"""The checker on runs that are not kept any more: what they are recalled by is held against what it saw itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.runtime.test_checker import NOW, checked, created, deployed, found, of_run, of_task, task
from tidewheel.core import events as e
from tidewheel.core.ended import packed, unpacked
from tidewheel.core.recall import recall
from tidewheel.core.workflow import Branch, Switch, Task, Workflow

WORKFLOW = Workflow(
    id="d",
    keep_runs=0,
    tasks=(
        Task(id="s", action=Switch(branches=(Branch(if_="x", then=("a",)), Branch(then=("b",))))),
        task("a", "s"),
        task("b", "s"),
        task("m", for_each=[1, 2]),
    ),
)
NEWER = msgspec.structs.replace(WORKFLOW, tasks=(task("n"),))


def attempt(name: str, number: int = 1, output: str | None = None) -> list[e.Event]:
    """An attempt of a task that is done well."""
    lease: dict[str, Any] = {"worker": "w", "expires_at": NOW + 30_000}
    return [
        of_task(e.TaskQueued, name, number, pool="default", pool_slots=1),
        of_task(e.TaskLeased, name, number, mail_partition=0, **lease),
        of_task(e.TaskStarted, name, number, started_at=NOW, **lease),
        of_task(e.TaskSucceeded, name, number, worker="w", started_at=NOW, ended_at=NOW, output=output),
    ]


def ended(kind: type[e.TaskEvent], name: str, number: int, **more: Any) -> e.Event:
    event: e.Event = of_task(kind, name, number, worker="", started_at=NOW, ended_at=NOW, **more)
    return event


FIRST: list[e.Event] = [
    deployed(WORKFLOW, cursor=None),
    created(),
    of_run(e.RunStarted),
    ended(e.TaskSucceeded, "s", 0, output='{"branch":1,"then":["b"]}'),
    of_task(e.TaskSkipped, "a", 0, reason="left out"),
    of_task(e.TaskExpanded, "m", 0, items=2, first=0, values="[1,2]"),
    *attempt("b", output="3"),
    *attempt("m[0]"),
    *attempt("m[1]"),
    ended(e.TaskSucceeded, "m", 0),
    of_run(e.RunSucceeded),
]


def came_to(*, until: int = len(FIRST)) -> bytes:
    own = [event for event in FIRST[:until] if isinstance(event, e.RunEvent)]
    return recall("d", own, lambda version: msgspec.json.encode(WORKFLOW).decode()).run


def reopened(recalled: bytes | None, **more: Any) -> e.Event:
    event: e.Event = of_run(e.RunReopened, **{"version": "v1", "inputs": "{}", "recalled": recalled, **more})
    return event


CLEARED = of_run(e.TasksCleared, tasks='["b","m[1]"]')
SECOND: list[e.Event] = [
    CLEARED,
    of_run(e.RunStarted),
    *attempt("b", 2),
    *attempt("m[1]", 2),
    ended(e.TaskSucceeded, "m", 0),
    of_run(e.RunSucceeded),
]


def test_a_recalled_run_goes_on_from_what_it_came_to() -> None:
    assert found(checked([*FIRST, reopened(came_to()), *SECOND])) == []


def test_a_definition_that_was_forgotten_comes_back() -> None:
    text = msgspec.json.encode(WORKFLOW).decode()
    newer = deployed(NEWER, "v2", cursor=None)
    assert found(checked([*FIRST, newer, reopened(came_to(), definition=text), *SECOND])) == []
    other = text.replace('"keep_runs":0', '"keep_runs":1')
    first = checked([*FIRST, newer, reopened(came_to(), definition=other), *SECOND]).violations[0]
    assert (first.offset, first.invariant) == (len(FIRST) + 1, 4)


def cancelled(run_id: str) -> list[e.Event]:
    """Another run, which comes to nothing."""
    tasks = [of_task(e.TaskCancelled, name, 0, run_id=run_id, worker="", reason="x") for name in ("s", "a", "b", "m")]
    begun = [created(run_id), of_run(e.RunCancelRequested, run_id)]
    return [*begun, *tasks, of_run(e.RunCancelled, run_id, reason="x")]


def test_a_definition_that_another_run_keeps_is_not_forgotten() -> None:
    kept = deployed(msgspec.structs.replace(WORKFLOW, keep_runs=1), cursor=None)
    newer = deployed(msgspec.structs.replace(NEWER, keep_runs=1), "v2", cursor=None)
    assert found(checked([kept, *FIRST[1:], *cancelled("q"), newer, reopened(came_to()), *SECOND])) == []


def test_under_the_latest_version_what_is_gone_is_gone() -> None:
    newer = deployed(NEWER, "v2", cursor=None)
    goes_on = [reopened(came_to(), version="v2"), of_run(e.RunStarted), *attempt("n"), of_run(e.RunSucceeded)]
    assert found(checked([*FIRST, newer, *goes_on])) == []


def with_task(run: bytes, index: int, field: int, value: object) -> bytes:
    ended, gone = msgspec.msgpack.decode(unpacked(run).tasks)
    ended[index][field] = value
    return packed(msgspec.structs.replace(unpacked(run), tasks=msgspec.msgpack.encode([ended, gone])))


@pytest.mark.parametrize(
    ("recalled", "said"),
    [
        (None, "not kept and not recalled"),
        (with_task(came_to(), 1, 2, 0), "something else than it came to"),
        (with_task(came_to(), 1, 1, "failed"), "something else than it came to"),
        (with_task(came_to(), 1, 3, "4"), "something else than it came to"),
        (packed(msgspec.structs.replace(unpacked(came_to()), run_id="q")), "something else than it came to"),
        (came_to()[:-1], "can not be read"),
        (packed(msgspec.structs.replace(unpacked(came_to()), tasks=b"\x90")), "can not be read"),
    ],
)
def test_a_run_that_is_recalled_wrongly_is_found(recalled: bytes | None, said: str) -> None:
    first = checked([*FIRST, reopened(recalled)]).violations[0]
    assert (first.offset, first.invariant) == (len(FIRST), 2)
    assert said in first.message


def test_a_live_run_is_not_recalled() -> None:
    first = checked([*FIRST, reopened(came_to()), reopened(came_to())]).violations[0]
    assert (first.offset, first.invariant) == (len(FIRST) + 1, 2)
    assert "is live" in first.message


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.runtime.witness.ended.RECALLABLE_RUNS", 1)
    other = cancelled("q")
    first = checked([*FIRST, *other, reopened(came_to())]).violations[0]
    assert (first.offset, first.invariant) == (len(FIRST) + len(other), 2)
    assert "not among the last 1 ended" in first.message
