"""Random DAGs, fates, orders of report, losses and cancels: every run ends as a plain reading of the rules says.

Most runs are made on the bare rules, which costs some milliseconds each; some through the whole engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.runtime.random_runs import EVALUATOR, RUN_ENDS, Crew, Luck, Told, random_workflow, told_by, waiting_workflow
from tests.runtime.reference_model import Ends, expected, left_running, output_length, overshot
from tidewheel.core import commands as c
from tidewheel.core.decide.wait import fail_wait
from tidewheel.core.graph import Tally, Verdict, judge
from tidewheel.core.mail import AssignTask
from tidewheel.core.shares import capacity_needed
from tidewheel.core.workflow import TriggerRule
from tidewheel.testing.world import Outcome, World

#: Of the bare rules: tests, worlds in each, DAGs in a world, runs of each DAG beside those that tasks ask for.
BLOCKS, WORLDS, DAGS, RUNS = 40, 27, 5, 3
#: So many of the DAGs, the first ones, have a task that asks for runs of a later one.
ASKING = 3
#: Of the whole engine: worlds, DAGs in each, with as many runs.
WHOLE_WORLDS, WHOLE_DAGS = 34, 10
#: What a run may take at most, in reports and timers.
STEPS_MAX = 3_000


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_rules_end_every_run_as_the_reference_says(block: int) -> None:
    runs = 0
    for world in range(WORLDS):
        seed = block * WORLDS + world
        try:
            runs += play_bare(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert runs * BLOCKS >= 20_000


def play_bare(seed: int) -> int:
    """Some runs of some DAGs that share a pool and ask for each other's runs, a seventh of them cancelled at some time;
    how many there were."""
    rng = random.Random(seed)
    names = [f"d{number}" for number in range(DAGS)]
    workflows = {
        dag: waiting_workflow(rng, dag, names[number + 1 :] if number < ASKING else [])
        for number, dag in enumerate(names)
    }
    started = {
        (dag, f"r{number}"): Luck(workflows, dag, rng.randint(0, 6), f"{rng.random()}")
        for dag in workflows
        for number in range(RUNS)
    }
    crew = Crew(rng, dict(started))
    for workflow in workflows.values():
        crew.engine.deploy(workflow)
    to_start = rng.sample(sorted(started), len(started))
    cancels = sorted((rng.randint(1, 250), place) for place in started if rng.random() < 0.15)
    for step in range(STEPS_MAX * len(started)):
        while to_start and (step == 0 or rng.random() < 0.05):
            dag, run_id = to_start.pop()
            crew.engine.ask(c.StartRun(dag=dag, run_id=run_id, inputs=f'{{"n": {started[dag, run_id].n}}}'))
        while cancels and cancels[0][0] <= step:
            crew.cancel(*cancels.pop(0)[1])
        if crew.ended == len(crew.fates):
            break
        crew.step()
    told = told_by(crew.engine.events)
    for place, luck in crew.fates.items():
        compare(luck, told[place], crew.said.get(place))
    crew.engine.allocate()
    pool = crew.engine.pool("default")
    assert not pool.waiting, "a run has ended and waits in a pool"
    assert not pool.leases, "a run has ended and holds slots"
    assert not crew.engine.violations()
    assert not left_running(crew.engine.events)
    shares = {dag: workflow.concurrency.max_pool_share for dag, workflow in workflows.items()}
    assert not overshot(crew.engine.events, shares, crew.capacity)
    return len(crew.fates)


def compare(luck: Luck, told: Told, said: Mapping[tuple[str, int], str] | None) -> None:
    """Hold what was told of a run against the reference. ``said`` is what became of the attempts that were live when
    it was cancelled, if that is known."""
    workflow = luck.workflow
    run_end, ends = expected(workflow, luck.n, luck)
    # Which of its other instances still end by themselves is a matter of time.
    hasty = {task.id for task in workflow.tasks if task.for_each is not None and task.fail_fast}
    for mapped, items in told.expanded.items():
        instances = {f"{mapped}[{index}]" for index in range(items)}
        assert instances == {name for name in ends if name.startswith(f"{mapped}[")}
        assert instances <= told.ends.keys(), f"of {mapped} not every instance has ended"
    if told.before is None:
        assert (told.end, told.ends.keys()) == (run_end, ends.keys())
        assert _certain(told.ends, hasty) == _certain(ends, hasty)
        return
    assert told.end == "cancelled"
    assert {task.id for task in workflow.tasks} <= told.ends.keys()
    before = _certain(told.before, hasty)
    assert before.items() <= ends.items()
    for name in told.ends.keys() - told.before.keys():
        end = told.ends[name]
        if said is None:
            assert end in ("cancelled", "success", "failed")
        else:
            assert end == (said.get((name, told.attempts[name])) or "cancelled"), name


def _certain(ends: Ends, hasty: set[str]) -> Ends:
    """Without the instances of those that fail fast."""
    return {name: end for name, end in ends.items() if "[" not in name or name.partition("[")[0] not in hasty}


def _one_success_skips(rule: TriggerRule, tally: Tally, needs: int) -> Verdict:
    verdict = judge(rule, tally, needs)
    return "skip" if rule == "one_success" and verdict == "upstream_failed" else verdict


def _none_skipped_is_hasty(rule: TriggerRule, tally: Tally, needs: int) -> Verdict:
    verdict = judge(rule, tally, needs)
    return "run" if rule == "none_skipped" and tally.success and verdict == "wait" else verdict


def _time_out_fails(d: Any, run_id: str, name: str, waited: object) -> None:
    fail_wait(d, run_id, name, "wait_timeout", "it waited for too long")


@pytest.mark.parametrize(
    ("place", "bug"),
    [
        ("readiness.judge", _one_success_skips),
        ("readiness.judge", _none_skipped_is_hasty),
        ("readiness.left_out", lambda *_: ""),
        ("decide.flow.start_runs", lambda *_: None),
        ("decide.lease.release", lambda *_, **__: None),
        ("decide.mapping.end_cancelled", lambda *_, **__: None),
        ("state.RunState.stops", lambda *_: False),
        ("decide.task.queue_held", lambda *_: None),
        ("decide.flow.tell_parent", lambda *_: None),
        ("decide.cancel.recall", lambda *_: None),
        ("decide.wait._time_out", _time_out_fails),
        ("decide.child.next_try", lambda *_: None),
        ("fold.pool.share_needs", lambda *_: 0),
        ("fold.pool.capacity_needed", lambda share, live, _: capacity_needed(share, live, 1)),
    ],
)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, place: str, bug: Callable[..., Any]) -> None:
    monkeypatch.setattr(f"tidewheel.core.{place}", bug)
    with pytest.raises(AssertionError):
        for seed in range(40):
            play_bare(seed)


@pytest.mark.parametrize("seed", range(WHOLE_WORLDS))
def test_the_whole_engine_ends_every_run_as_the_reference_says(seed: int) -> None:
    rng = random.Random(seed)
    workflows = {f"d{number}": random_workflow(rng, f"d{number}") for number in range(WHOLE_DAGS)}
    fates = {
        (dag, f"r{number}"): Luck(workflows, dag, rng.randint(0, 6), f"{rng.random()}")
        for dag in workflows
        for number in range(RUNS)
    }

    def act(work: AssignTask) -> Outcome:
        fate = fates[work.dag, work.run_id](work.task)[work.attempt - 1]
        kind: Any = {"ok": None, "fail": "exception", "lose": "worker_lost"}[fate]
        takes_ms = rng.choice([0, 0, 300, 20_000])
        return Outcome(takes_ms=takes_ms, fails=kind, output=list(range(output_length(work.task))))

    checkpoint_events = rng.choice([20, 500, 10_000])
    world = World(EVALUATOR, seed=seed, schedulers=rng.randint(1, 2), checkpoint_events=checkpoint_events)
    world.add_worker("w1", slots=12, behaviour=act)
    world.add_worker("w2", slots=8, behaviour=act)
    for workflow in workflows.values():
        world.deploy(workflow)
    for (dag, run_id), luck in fates.items():
        world.send(c.StartRun(dag=dag, run_id=run_id, inputs=f'{{"n": {luck.n}}}'))
        if rng.random() < 0.15:
            cancel = c.CancelRun(actor="user:test", dag=dag, run_id=run_id, reason="enough")
            world.after(rng.randint(1, 100_000), lambda cancel=cancel: world.send(cancel))  # type: ignore[misc]
    for _ in range(2_000):
        if len(world.events(*RUN_ENDS)) == len(fates):
            break
        world.advance(60_000, step_ms=5_000)
    told = told_by(world.events())
    for place, luck in fates.items():
        compare(luck, told[place], None)
    world.check()
