"""The witness's note of one task."""

from __future__ import annotations

from tidewheel.core.events import TaskDeferred

ACTIVE = frozenset({"queued", "leased", "running"})
LIVE = frozenset({"leased", "running"})
UNSTARTED = frozenset({"scheduled", "ready", "retrying"})


class TaskRecord:
    """Where one task stands, or one instance of a mapped task."""

    __slots__ = (
        "attempt",
        "begun",
        "cancel_requested",
        "ended",
        "expires_at",
        "failed",
        "items",
        "phase",
        "wait",
        "worker",
    )

    def __init__(self) -> None:
        #: Of a mapped task: its items, and the instances that have begun, ended, failed.
        self.items: int | None = None
        self.begun = self.ended = self.failed = 0
        self.phase = "scheduled"
        self.attempt = 0
        self.worker = ""
        self.expires_at = 0
        self.cancel_requested = False
        #: Of an attempt that waits without a worker: how its wait began.
        self.wait: TaskDeferred | None = None
