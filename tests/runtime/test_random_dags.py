"""Random DAGs, results, orders of report and losses: the engine ends every run as a plain reading of the rules does."""

from __future__ import annotations

import random
from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import AssignTask
from tidewheel.core.workflow import Branch, Concurrency, Retry, Run, Switch, Task, TriggerRule, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.testing.world import Outcome, World

EVALUATOR = CelEvaluator()
#: How each attempt of each task, or instance of a mapped one, ends.
Fates = dict[str, list[str]]


def random_workflow(rng: random.Random) -> Workflow:
    """Up to 30 tasks with any rule, over tasks that come before them."""
    tasks: list[Task] = []
    for number in range(rng.randint(1, 30)):
        needs = rng.sample([task.id for task in tasks], min(len(tasks), rng.randint(0, 4)))
        tasks.append(
            Task(
                id=f"t{number}",
                action=Run(command="true"),
                needs=tuple(needs),
                trigger_rule=rng.choice(get_args(TriggerRule)),
                if_=rng.choice([None, None, None, "true", "1 > 2"]),
                retry=Retry(max=rng.randint(0, 2), delay_ms=rng.randint(0, 500)),
                infra_retries=rng.randint(0, 2),
                for_each=rng.choice([None, None, None, list(range(rng.randint(0, 4)))]),
                max_parallel=rng.choice([None, 1, 2]),
                fail_fast=rng.random() < 0.3,
            )
        )
    tasks = [random_switch(rng, tasks, task) if rng.random() < 0.2 else task for task in tasks]
    limits = Concurrency(max_runs=rng.randint(1, 3), max_tasks=rng.choice([None, 1, 5]))
    return Workflow(id="d", tasks=tuple(tasks), concurrency=limits)


def random_switch(rng: random.Random, tasks: list[Task], task: Task) -> Task:
    """A switch in the place of ``task``, over some of the tasks that need it."""
    below = [other.id for other in tasks if task.id in other.needs]
    conditions = rng.choices(["true", "1 > 2", "1 / 0 > 1"], [3, 6, 1], k=rng.randint(1, 3))
    branches = [Branch(if_=condition, then=tuple(rng.sample(below, min(1, len(below))))) for condition in conditions]
    if rng.random() < 0.5:
        branches.append(Branch(then=tuple(below[:2])))
    return msgspec.structs.replace(task, action=Switch(branches=tuple(branches)), for_each=None)


def expected(workflow: Workflow, fates: Fates) -> tuple[str, dict[str, str]]:
    """The reference: tasks in the file's order, each judged once by how all its upstreams ended."""
    ends: dict[str, str] = {}
    above: dict[str, set[str]] = {}
    left_out: set[str] = set()
    for task in workflow.tasks:
        above[task.id] = set(task.needs).union(*(above[name] for name in task.needs))
    for task in workflow.tasks:
        end = "skipped" if task.id in left_out else _end(task, [ends[name] for name in task.needs])
        if end == "run" and isinstance(task.action, Switch):
            end, then = _switched(task.action)
            named = {name for branch in task.action.branches for name in branch.then}
            if end == "success":
                left_out |= {name for name in named - set(then) if not above[name] & set(then)}
        elif end == "run" and task.for_each is None:
            end = _attempts_end(task, fates[task.id])
        elif end == "run":
            instances = {f"{task.id}[{n}]": _attempts_end(task, fates[f"{task.id}[{n}]"]) for n in task.for_each}
            end = "failed" if "failed" in instances.values() else "success"
            ends |= instances
        ends[task.id] = end
    needed = {name for task in workflow.tasks for name in task.needs}
    leaves = [ends[task.id] for task in workflow.tasks if task.id not in needed]
    return "failed" if {"failed", "upstream_failed"} & set(leaves) else "success", ends


def _end(task: Task, ups: list[str]) -> str:
    verdict = _verdict(task.trigger_rule, ups) if ups and task.trigger_rule != "always" else "run"
    if verdict != "run":
        return verdict
    return "skipped" if task.if_ == "1 > 2" else "run"


def _switched(switch: Switch) -> tuple[str, tuple[str, ...]]:
    """How the switch ends, and the tasks that go on."""
    for branch in switch.branches:
        if branch.if_ == "1 / 0 > 1":
            return "failed", ()
        if branch.if_ != "1 > 2":
            return "success", branch.then
    return "success", ()


def _attempts_end(task: Task, fate: list[str]) -> str:
    failures = losses = 0
    for end in fate:
        failures += end == "fail"
        losses += end == "lose"
        if end == "ok":
            return "success"
        if failures > task.retry.max or losses > task.infra_retries:
            return "failed"
    return "success"


def _verdict(rule: TriggerRule, ups: list[str]) -> str:
    bad = any(end in ("failed", "upstream_failed") for end in ups)
    good, skipped = "success" in ups, "skipped" in ups
    match rule:
        case "all_success":
            return "upstream_failed" if bad else "skipped" if skipped else "run"
        case "all_failed":
            return "skipped" if good or skipped else "run"
        case "all_done" | "always":
            return "run"
        case "one_success":
            return "run" if good else "upstream_failed" if bad else "skipped"
        case "one_failed":
            return "run" if bad else "skipped"
        case "none_failed":
            return "upstream_failed" if bad else "run"
        case "none_failed_min_one_success":
            return "upstream_failed" if bad else "run" if good else "skipped"
        case "none_skipped":
            return "skipped" if skipped else "run"


ENDS: dict[type[e.Event], str] = {
    e.TaskSucceeded: "success",
    e.TaskFailed: "failed",
    e.LeaseExpired: "failed",
    e.TaskSkipped: "skipped",
    e.TaskUpstreamFailed: "upstream_failed",
}


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_run_ends_as_the_reference_says(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng)
    names = [f"{task.id}{index}" for task in workflow.tasks for index in ("", *(f"[{n}]" for n in task.for_each or ()))]
    fates = {name: rng.choices(["ok", "fail", "lose"], [6, 3, 1], k=8) for name in names}
    # Which of its other instances still end by themselves is a matter of time.
    hasty = {task.id for task in workflow.tasks if task.for_each is not None and task.fail_fast}

    def act(work: AssignTask) -> Outcome:
        fate = fates[work.task][work.attempt - 1] if work.attempt <= 8 else "ok"
        kind: Any = {"ok": None, "fail": "exception", "lose": "worker_lost"}[fate]
        return Outcome(takes_ms=rng.choice([0, 0, 300, 20_000]), fails=kind)

    world = World(EVALUATOR, seed=seed, schedulers=rng.randint(1, 2), checkpoint_events=rng.choice([5, 50, 10_000]))
    world.add_worker("w1", slots=3, behaviour=act)
    world.add_worker("w2", slots=2, behaviour=act)
    world.deploy(workflow)
    for number in range(2):
        world.ask(c.StartRun(dag="d", run_id=f"r{number}"))
    for _ in range(2_000):
        ended = world.events(e.RunSucceeded, e.RunFailed)
        if len(ended) == 2:
            break
        world.advance(5_000, step_ms=5_000)
    run_end, task_ends = expected(workflow, fates)
    assert {type(event).__name__ for event in ended} == {"RunSucceeded" if run_end == "success" else "RunFailed"}
    found: dict[tuple[str, str], str] = {}
    for event in world.events(*ENDS):  # type: ignore[arg-type]
        if getattr(event, "retry_at", None) is None:
            key = (event.run_id, event.task)  # type: ignore[union-attr]
            assert key not in found, f"{key} ended twice"
            found[key] = ENDS[type(event)]
    wanted = {(run, task): end for run in ("r0", "r1") for task, end in task_ends.items()}
    assert _certain(found, hasty) == _certain(wanted, hasty)
    world.check()


def _certain(ends: dict[tuple[str, str], str], hasty: set[str]) -> dict[tuple[str, str], str]:
    """Without the instances of those that fail fast."""
    return {key: end for key, end in ends.items() if "[" not in key[1] or key[1].partition("[")[0] not in hasty}
