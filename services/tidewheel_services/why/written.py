"""What of a definition says why something waits. Keys that a later release adds are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core.workflow import Concurrency


class WrittenTask(msgspec.Struct, frozen=True):
    """A task as it is written."""

    id: str
    needs: tuple[str, ...] = ()
    trigger_rule: str = "all_success"
    max_parallel: int | None = None
    queue_timeout_ms: int | None = None
    for_each: Any = None


class Limits(msgspec.Struct, frozen=True):
    """The DAG's ``concurrency``."""

    max_runs: int = Concurrency().max_runs
    max_tasks: int | None = None


class WrittenSchedule(msgspec.Struct, frozen=True):
    """What a slot does while a run is not finished."""

    overlap: str = "queue"


class Written(msgspec.Struct, frozen=True):
    """A version of a workflow."""

    tasks: tuple[WrittenTask, ...] = ()
    concurrency: Limits = Limits()
    schedule: WrittenSchedule | None = None

    def task(self, ordinal: int) -> WrittenTask:
        """The task at this place."""
        return self.tasks[ordinal]


def written(definition: Any) -> Written:
    """From the canonical JSON, decoded."""
    return msgspec.convert(definition, Written)
