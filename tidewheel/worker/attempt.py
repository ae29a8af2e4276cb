"""One attempt on this worker, from its mail to its report."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from tidewheel.core.assignment import ActionSpec
from tidewheel.core.attempt import attempt_key
from tidewheel.core.mail import AssignTask
from tidewheel.task.context import CHECKPOINT_BYTES_MAX
from tidewheel.worker.executor import Executor
from tidewheel.worker.lease import Lease
from tidewheel.worker.tasklog import TaskLog

#: Progress is for people to see, and goes into an event each time.
PROGRESS_BYTES_MAX = 16 * 1024


class StopReason(enum.Enum):
    """Why an attempt is ended from outside; a later reason of higher ``rank`` replaces an earlier one in the report."""

    TIMEOUT = ("timeout", 0)
    #: The lease may be over soon: kill at once.
    FENCE = ("fence", 0)
    #: The worker goes away.
    GIVE_UP = ("give_up", 0)
    CANCEL = ("cancel", 1)
    #: The attempt is fenced: kill, and say nothing.
    DISCARD = ("discard", 2)

    @property
    def rank(self) -> int:
        """What it replaces."""
        return self.value[1]

    @property
    def gentle(self) -> bool:
        """Whether the user's code is asked first (TERM, grace) before it is killed."""
        return self in (StopReason.TIMEOUT, StopReason.CANCEL)


class Control(Protocol):
    """How the worker reaches what an executor runs. Called from any thread; must not block or raise."""

    def stop(self, reason: StopReason) -> None:
        """Begin to end it. May be called again with a more urgent reason."""

    def extend(self, fence_at: float) -> None:
        """The lease was renewed: it may run until this monotonic instant."""


class Attempt:
    """The attempt's state. ``settled`` means its end is decided and nobody may report about it any more."""

    __slots__ = (
        "_checkpoint",
        "_checkpoint_lock",
        "_control",
        "_lock",
        "_log",
        "_on_progress",
        "_open_log",
        "action",
        "assignment",
        "begun",
        "cancelled",
        "check_at",
        "executor",
        "key",
        "lease",
        "progress",
        "received",
        "returned",
        "settled",
        "start_reported",
        "started",
        "started_at",
        "stopped",
        "stopped_at",
    )

    def __init__(
        self,
        assignment: AssignTask,
        action: ActionSpec,
        executor: Executor,
        received: float,
        open_log: Callable[[AssignTask], TaskLog],
        on_progress: Callable[[Attempt], None],
    ) -> None:
        self.assignment = assignment
        self.action = action
        self.executor = executor
        self.key = attempt_key(assignment)
        self.received = received
        self.lease = Lease(assignment.lease_ms, received)
        #: Wall clock in ms and monotonic seconds of the start.
        self.started_at = 0
        self.started = 0.0
        self.begun = False
        #: Its thread has come back from the executor.
        self.returned = False
        self.settled = False
        self.start_reported = False
        self.stopped: StopReason | None = None
        self.stopped_at = 0.0
        self.cancelled = threading.Event()
        #: JSON text to go with the next beat.
        self.progress: str | None = None
        #: JSON text for the next attempt that has not gone out yet, and the lock under which it does.
        self._checkpoint: str | None = None
        self._checkpoint_lock = threading.Lock()
        #: When the watch looks at it next.
        self.check_at = 0.0
        self._control: Control | None = None
        self._lock = threading.Lock()
        self._log: TaskLog | None = None
        self._open_log = open_log
        self._on_progress = on_progress

    @property
    def timeout_at(self) -> float | None:
        """The monotonic instant at which the attempt has run too long."""
        timeout_ms = self.assignment.timeout_ms
        return None if timeout_ms is None or not self.begun else self.started + timeout_ms / 1000

    @property
    def log(self) -> TaskLog:
        """The task's log."""
        if self._log is None:
            self._log = self._open_log(self.assignment)
        return self._log

    def show(self, progress: str) -> None:
        """Show ``progress`` (JSON text) with a beat soon."""
        masked = self.log.masker.mask_json(progress)
        size = len(masked.encode())
        if size > PROGRESS_BYTES_MAX:
            masked = f'"progress of {size} bytes is not shown: at most {PROGRESS_BYTES_MAX} are"'
        self.progress = masked
        self._on_progress(self)

    def save(self, checkpoint: str) -> None:
        """Keep ``checkpoint`` (JSON text) for the task's next attempt: it goes out soon, or with the attempt's end.

        Too large or, without its secrets, no JSON any more, it is not kept, and the log says so.
        """
        masked = self.log.masker.mask_json(checkpoint)
        try:
            msgspec.json.decode(masked)
        except (msgspec.DecodeError, RecursionError) as error:
            self.log.remark(f"the checkpoint is not kept: with its secrets masked it is not JSON: {error}")
            return
        size = len(masked.encode())
        if size > CHECKPOINT_BYTES_MAX:
            self.log.remark(f"the checkpoint is not kept: it has {size} bytes, and may have {CHECKPOINT_BYTES_MAX}")
            return
        with self._checkpoint_lock:
            self._checkpoint = masked
        self._on_progress(self)

    @property
    def has_checkpoint(self) -> bool:
        """Whether one has still to go out."""
        return self._checkpoint is not None

    def hand_over(self, send: Callable[[str], None]) -> None:
        """Send the checkpoint that has not gone out yet, if there is one; who comes second finds it gone out."""
        with self._checkpoint_lock:
            if self._checkpoint is not None:
                send(self._checkpoint)
                self._checkpoint = None

    def close_log(self) -> None:
        """Send what is left of the log, if there is one."""
        if self._log is not None:
            self._log.close()

    def begin(self, started: float, started_at: int) -> bool:
        """Begin to run. False: its end was decided before, so it must not run."""
        with self._lock:
            if self.settled or self.stopped is not None:
                return False
            self.started, self.started_at, self.begun = started, started_at, True
            return True

    def settle(self) -> bool:
        """Decide the attempt's end. True for the one caller who may report it."""
        with self._lock:
            won = not self.settled
            self.settled = True
            return won

    def attach(self, control: Control) -> None:
        """From now on ``control`` hears of stops and renewals; of a stop that came before, at once."""
        with self._lock:
            self._control = control
            reason, fence_at = self.stopped, self.lease.fence_at
        control.extend(fence_at)
        if reason is not None:
            control.stop(reason)

    def detach(self) -> None:
        """What ran is gone."""
        with self._lock:
            self._control = None

    def stop(self, reason: StopReason, now: float) -> bool:
        """End the attempt. True: nothing of it runs, or it cannot be killed, so the caller settles and reports it."""
        with self._lock:
            if self.settled:
                return False
            if self.stopped is None or reason.rank > self.stopped.rank:
                self.stopped = reason
                self.stopped_at = now
            control, begun = self._control, self.begun
        self.cancelled.set()
        if control is not None:
            control.stop(reason)
        return not begun or not (self.executor.killable or reason is StopReason.CANCEL)

    def make_beat(self, now: float) -> int:
        """Count a beat."""
        with self._lock:
            return self.lease.make_beat(now)

    def renew(self, beat: int, lease_ms: int) -> None:
        """The scheduler has acknowledged ``beat``."""
        with self._lock:
            if not self.lease.acknowledge(beat, lease_ms):
                return
            control, fence_at = self._control, self.lease.fence_at
        if control is not None:
            control.extend(fence_at)
