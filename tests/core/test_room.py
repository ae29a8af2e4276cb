"""How much may wait, and when what was put off goes on."""

from __future__ import annotations

import pytest

from tests.core.scenes import NOW, RULES, deployed, given, task, workflow
from tidewheel.core import events as e
from tidewheel.core.room import has_much_room, has_room, is_full
from tidewheel.core.rules import Rules
from tidewheel.core.snapshot import decode_snapshot, encode_snapshot
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Concurrency

TIGHT = Rules(
    evaluator=RULES.evaluator, waiting_runs_max=4, waiting_bytes_max=40, shard_runs_max=50, shard_bytes_max=100
)


def created(number: int, inputs: str = "{}", kind: str = "kafka") -> e.RunCreated:
    date = NOW + number if kind == "scheduled" else None
    return e.RunCreated(dag="d", run_id=f"r{number}", at=NOW, version="v1", kind=kind, inputs=inputs, logical_date=date)


def a_dag(*events: e.Event) -> Dag:
    of = workflow(task("a"), concurrency=Concurrency(max_runs=1))
    state = given(Dag(dag="d"), deployed(of), *events, rules=RULES).state
    assert isinstance(state, Dag)
    return state


def test_a_dag_is_put_off_at_its_bound_and_goes_on_at_half_of_it() -> None:
    of_waiting = {count: a_dag(*map(created, range(count))) for count in range(6)}
    assert [has_room(state, TIGHT) for state in of_waiting.values()] == [True] * 4 + [False] * 2
    assert [has_much_room(state, TIGHT) for state in of_waiting.values()] == [True] * 3 + [False] * 3


def test_large_inputs_fill_the_room_before_many_runs_do_but_one_may_always_wait() -> None:
    large = '{"text": "' + "x" * 40 + '"}'
    assert has_room(a_dag(), TIGHT)
    assert not has_room(a_dag(created(0, large)), TIGHT)
    assert not has_much_room(a_dag(created(0, large)), TIGHT)
    started = a_dag(created(0, large), e.RunStarted(dag="d", run_id="r0", at=NOW))
    assert has_room(started, TIGHT)
    assert has_much_room(started, TIGHT)


@pytest.mark.parametrize(
    ("runs", "input_bytes", "before", "full"),
    [
        (49, 99, False, False),
        (50, 0, False, True),
        (0, 100, False, True),
        (41, 0, True, True),
        (40, 80, True, False),
        (0, 81, True, True),
    ],
)
def test_a_shard_is_full_at_its_bound_until_four_fifths(runs: int, input_bytes: int, before: bool, full: bool) -> None:
    assert is_full(runs, input_bytes, TIGHT, before=before) is full


def test_what_is_counted_comes_and_goes_with_the_runs_and_is_the_same_from_a_snapshot() -> None:
    queued = a_dag(created(0, '{"a": 1}'), created(1, kind="scheduled"), created(2, kind="scheduled"))
    assert (queued.input_bytes, queued.queued_scheduled) == (12, 2)
    started = given(queued, e.RunStarted(dag="d", run_id="r1", at=NOW), rules=RULES).state
    assert (started.input_bytes, started.queued_scheduled) == (12, 1)
    assert decode_snapshot("dag", encode_snapshot(started)) == started
    ended = given(
        started,
        e.RunCancelled(dag="d", run_id="r1", at=NOW),
        e.RunCancelled(dag="d", run_id="r2", at=NOW),
        e.RunCancelled(dag="d", run_id="r0", at=NOW),
        rules=RULES,
    ).state
    assert (ended.input_bytes, ended.queued_scheduled) == (0, 0)
