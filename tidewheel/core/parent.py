"""Who asked for a run, if a task of another run did."""

from __future__ import annotations

import msgspec

from tidewheel.core.events import RunCreated


class Parent(msgspec.Struct, frozen=True):
    """The attempt that asked for a run, and how many runs stand above the run in all."""

    dag: str
    run_id: str
    task: str
    attempt: int
    depth: int


def parent_of(event: RunCreated) -> Parent | None:
    """As the run's first event says it."""
    if event.parent_attempt is None or event.depth is None:
        return None
    return Parent(event.parent_dag, event.parent_run_id, event.parent_task, event.parent_attempt, event.depth)
