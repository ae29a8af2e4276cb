"""Random workflows that nobody would write: their tasks, what these need, and the switches among them.

A ``Style`` says what may stand in them; the same random numbers give the same workflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from tidewheel.core.workflow import Action, Branch, Retry, Run, Switch, Task, TriggerRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What tasks are drawn from; what is meant to be rare stands in a list beside several of the usual.

    The first task is always plain work, run once, so that expressions may speak of its output.
    """

    tasks_max: int
    needs_max: int
    rules: Sequence[TriggerRule]
    action: Callable[[Random], Action]
    #: An ``if``, and the ``for_each`` of a task other than the first, by the task's rule and what it needs.
    condition: Callable[[Random, TriggerRule, Sequence[str]], str | None]
    items: Callable[[Random, TriggerRule, Sequence[str]], Any]
    env: Callable[[Random, Sequence[str]], dict[str, str]] = lambda rng, needs: {}
    delays_ms: Sequence[int]
    losses_max: int
    pools: Sequence[str] = ("default",)
    widths: Sequence[int] = (1,)
    #: The last word on each task.
    finish: Callable[[Random, Task], Task] = lambda rng, task: task
    #: How many of the tasks that others need are switches, and what their branches ask.
    switches: float
    branch_conditions: Sequence[str]


def random_tasks(rng: Random, style: Style) -> tuple[Task, ...]:
    """Tasks that need only such as come before them."""
    tasks: list[Task] = []
    for number in range(rng.randint(1, style.tasks_max)):
        needs = tuple(rng.sample([task.id for task in tasks], min(len(tasks), rng.randint(0, style.needs_max))))
        action = style.action(rng) if number else Run(command="true")
        rule = rng.choice(style.rules)
        task = Task(
            id=f"t{number}",
            action=action,
            needs=needs,
            trigger_rule=rule,
            if_=style.condition(rng, rule, needs),
            env=style.env(rng, needs),
            retry=Retry(max=rng.randint(0, 2), delay_ms=rng.choice(style.delays_ms)),
            infra_retries=rng.randint(0, style.losses_max),
            pool=rng.choice(style.pools),
            pool_slots=rng.choice(style.widths),
            for_each=style.items(rng, rule, needs) if number else None,
            max_parallel=rng.choice([None, 1, 2]),
            fail_fast=rng.random() < 0.3,
        )
        tasks.append(style.finish(rng, task))
    return tuple(
        _as_switch(rng, tasks, task, style.branch_conditions) if number and rng.random() < style.switches else task
        for number, task in enumerate(tasks)
    )


def _as_switch(rng: Random, tasks: Sequence[Task], task: Task, conditions: Sequence[str]) -> Task:
    """A switch in the place of ``task`` over tasks that need it; the task itself if none does."""
    below = [other.id for other in tasks if task.id in other.needs]
    if not below:
        return task
    asked = [rng.choice(conditions) for _ in range(rng.randint(1, 3))]
    branches = [Branch(if_=condition, then=_some(rng, below)) for condition in asked]
    if rng.random() < 0.5:
        branches.append(Branch(then=_some(rng, below)))
    return msgspec.structs.replace(task, action=Switch(branches=tuple(branches)), for_each=None)


def _some(rng: Random, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(rng.sample(names, rng.randint(0, min(2, len(names)))))
