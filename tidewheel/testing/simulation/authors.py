"""Workflows that nobody would write, one unlike the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from tidewheel.core.workflow import (
    Action,
    ApprovalWait,
    Catchup,
    Concurrency,
    Deadline,
    DeadlineAction,
    DeadlineFrom,
    HttpWait,
    KafkaWait,
    OnTimeout,
    Overlap,
    Records,
    RetryKind,
    Run,
    RunEnd,
    RunWait,
    Schedule,
    SubWorkflow,
    Task,
    TimeWait,
    Trigger,
    TriggerDag,
    TriggerRule,
    WaitFor,
    Workflow,
)
from tidewheel.testing.simulation.expressions import KEY, LARGE, NEVER, NUMBER, SECOND_TRY
from tidewheel.testing.simulation.services import URLS
from tidewheel.testing.workflows import Style, random_tasks

DAGS: Final = ("alpha", "beta", "gamma", "delta")
#: Slots that each pool ends with, and that every worker offers to it: a task of width 3 never fits into ``small``.
POOLS: Final = {"default": 4, "small": 2}

_CATCHUPS = get_args(Catchup)
_OVERLAPS = get_args(Overlap)
_DEADLINE_ACTIONS = get_args(DeadlineAction)
_DEADLINE_BEGINS = get_args(DeadlineFrom)


def _action(rng: random.Random) -> Action:
    """Mostly work; else a wait: for no time, for a while, for longer than it may, for what is no time, for others."""
    if rng.random() < 0.7:
        return Run(command="true")
    on_timeout = rng.choice(get_args(OnTimeout))
    if rng.random() < 0.3:
        approval = ApprovalWait(roles=rng.choice([(), ("boss",)]))
        return WaitFor(what=approval, timeout_ms=rng.choice([9_000, 90_000]), on_timeout=on_timeout)
    if rng.random() < 0.4:
        return WaitFor(what=_watched(rng), timeout_ms=rng.choice([9_000, 90_000, 900_000]), on_timeout=on_timeout)
    if rng.random() < 0.5:
        return WaitFor(what=_other_run(rng), timeout_ms=rng.choice([9_000, 90_000, 900_000]), on_timeout=on_timeout)
    what = TimeWait(at=NUMBER) if rng.random() < 0.2 else TimeWait(after_ms=rng.choice([0, 700, 50_000]))
    return WaitFor(what=what, timeout_ms=rng.choice([None, None, 700, 9_000]), on_timeout=on_timeout)


def _watched(rng: random.Random) -> HttpWait | KafkaWait:
    """What a waiter looks for: a service of others that is up, a record that comes or has come."""
    if rng.random() < 0.4:
        return HttpWait(url=rng.choice(URLS), every_ms=rng.choice([1_000, 5_000, 60_000]))
    window_ms = rng.choice([0, 20_000, 300_000])
    return KafkaWait(topic=rng.choice(["a", "b", "b"]), match=rng.choice([None, LARGE]), window_ms=window_ms)


def _other_run(rng: random.Random) -> RunWait:
    """A run of some DAG, which may have been, be, come or never be; perhaps the one that waits."""
    states: tuple[RunEnd, ...] = rng.choice([("success",), ("success", "failed"), get_args(RunEnd)])
    if rng.random() < 0.5:
        slot = f"2026-01-05T00:{rng.randint(0, 12):02}:{rng.choice(['00', '30'])}Z"
        return RunWait(dag=rng.choice((*DAGS, "nobody")), logical_date=slot, states=states)
    return RunWait(dag=rng.choice(DAGS), run_id=f"r{rng.randint(0, 12)}", states=states)


def _ask(rng: random.Random, dag: str) -> TriggerDag | SubWorkflow:
    """Ask another DAG for a run: one that is there or not, and takes these inputs or not. Those that wait for each
    other's runs do so in one direction, or two of them could stand still for ever."""
    inputs = {"n": NUMBER} if rng.random() < 0.2 else {}
    below = DAGS[DAGS.index(dag) + 1 :]
    if below and rng.random() < 0.75:
        return SubWorkflow(dag=rng.choice(below), inputs=inputs)
    return TriggerDag(dag=rng.choice((*below, *below, dag, "nobody")), inputs=inputs)


def _condition(rng: random.Random, rule: TriggerRule, needs: Sequence[str]) -> str | None:
    return rng.choice([None, None, None, None, NEVER, SECOND_TRY]) if needs else None


def _env(rng: random.Random, needs: Sequence[str]) -> dict[str, str]:
    return {"N": NUMBER} if needs and rng.random() < 0.3 else {}


def _items(rng: random.Random, rule: TriggerRule, needs: Sequence[str]) -> Any:
    return rng.choice([None, None, None, [], [1], [1, 2, 3], NUMBER])


def _with_limits(rng: random.Random, task: Task) -> Task:
    kinds: tuple[RetryKind, ...] = rng.choice([(), (), ("timeout",), ("exception", "exit_code")])
    return msgspec.structs.replace(
        task,
        retry=msgspec.structs.replace(task.retry, only_on_kinds=kinds),
        queue_timeout_ms=rng.choice([None, None, None, 5_000, 60_000]),
        total_timeout_ms=rng.choice([None, None, 60_000]),
        heartbeat_timeout_ms=rng.choice([None, None, None, 45_000]),
    )


_STYLE: Final = Style(
    tasks_max=7,
    needs_max=3,
    rules=("all_success", "all_done", *get_args(TriggerRule)),
    action=_action,
    condition=_condition,
    items=_items,
    env=_env,
    delays_ms=(0, 400, 20_000),
    losses_max=3,
    pools=("default", "default", "small"),
    widths=(1, 1, 1, 2, 3),
    finish=_with_limits,
    switches=0.3,
    branch_conditions=(NEVER, SECOND_TRY),
)


def write_workflow(rng: random.Random, dag: str, *, schedule: bool) -> Workflow:
    """A random workflow; without ``schedule`` it starts nothing by itself."""
    tasks = list(random_tasks(rng, _STYLE))
    if len(tasks) > 1 and rng.random() < 0.6:
        number = rng.randrange(1, len(tasks))
        timeout_ms = rng.choice([None, None, 2_000, 60_000])
        action = _ask(rng, dag)
        if action.dag != dag:
            tasks[number] = msgspec.structs.replace(tasks[number], action=action, timeout_ms=timeout_ms)
        elif schedule:
            # Once a run: a few at a time are 3^16 before its chains are too long.
            tasks[number] = msgspec.structs.replace(tasks[number], action=action, timeout_ms=timeout_ms, for_each=None)
    catchup = rng.choice(_CATCHUPS)
    overlap: Overlap = rng.choice(_OVERLAPS) if catchup != "all" else "queue"
    every = Schedule(every_ms=rng.choice([30_000, 150_000]), catchup=catchup, overlap=overlap)
    return Workflow(
        id=dag,
        tasks=tuple(tasks),
        schedule=every if schedule and rng.random() < 0.5 else None,
        concurrency=Concurrency(
            max_runs=rng.randint(1, 4),
            max_tasks=rng.choice([None, 1, 2, 5]),
            max_pool_share=rng.choice([None, None, 1, 30, 50, 100]),
        ),
        priority=rng.choice([0, 0, 5]),
        keep_runs=rng.choice([0, 1, 3, 20]),
        deadlines=_deadlines(rng),
        triggers=_triggers(rng),
    )


def _triggers(rng: random.Random) -> tuple[Trigger, ...]:
    """The one takes records by their keys, the other each for itself; some only what is large."""
    names = rng.sample(["each", "keyed"], rng.choice([0, 0, 1, 2]))
    return tuple(
        Trigger(
            id=name,
            kafka=Records(
                topic=rng.choice(["a", "a", "b"]),
                filter=rng.choice([None, None, None, LARGE]),
                dedupe_key=KEY if name == "keyed" else None,
            ),
        )
        for name in names
    )


def _deadlines(rng: random.Random) -> tuple[Deadline, ...]:
    return tuple(
        Deadline(
            within_ms=rng.choice([0, 700, 9_000, 60_000]),
            from_=rng.choice(_DEADLINE_BEGINS),
            action=rng.choice(_DEADLINE_ACTIONS),
        )
        for _ in range(rng.choice([0, 0, 0, 1, 2]))
    )
