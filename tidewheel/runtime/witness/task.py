"""The witness's note of one task."""

from __future__ import annotations

from hashlib import blake2b

from tidewheel.core.events import TaskDeferred

ACTIVE = frozenset({"queued", "leased", "running"})
LIVE = frozenset({"leased", "running"})
UNSTARTED = frozenset({"scheduled", "ready", "retrying"})


class TaskRecord:
    """Where one task stands, or one instance of a mapped task."""

    __slots__ = (
        "again",
        "attempt",
        "begun",
        "cancel_requested",
        "early",
        "ended",
        "expires_at",
        "failed",
        "items",
        "output",
        "phase",
        "postponed",
        "then",
        "wait",
        "worker",
    )

    def __init__(self, attempt: int = 0) -> None:
        #: Of a mapped task: its items, and the instances that have begun, ended, failed.
        self.items: int | None = None
        self.begun = self.ended = self.failed = 0
        #: Of those before ``begun``, who waits to begin once more; of those behind it, who does not wait any more.
        self.again: set[int] = set()
        self.early: set[int] = set()
        self.phase = "scheduled"
        self.attempt = attempt
        #: Of what it gave to those downstream, ``output_hash``.
        self.output = b""
        self.worker = ""
        self.expires_at = 0
        self.cancel_requested = False
        #: Of an attempt that waits without a worker: how its wait began.
        self.wait: TaskDeferred | None = None
        #: It asks for a run, and was told that there is none yet.
        self.postponed = False
        #: What a person decided for when it is not live any more.
        self.then = ""

    @property
    def next(self) -> int:
        """Of a mapped task: the instance whose turn it is to begin."""
        return min(self.again) if self.again else self.begun

    @property
    def at_work(self) -> int:
        """Of a mapped task: instances that have begun and not ended."""
        return self.begun + len(self.early) - len(self.again) - self.ended

    def begin(self, index: int) -> None:
        """An instance of it does not wait any more."""
        if index in self.again:
            self.again.discard(index)
            return
        self.early.add(index)
        while self.begun in self.early:
            self.early.discard(self.begun)
            self.begun += 1

    def wait_again(self, index: int) -> None:
        """An instance of it that had begun, or ended before its turn, waits for its turn once more."""
        if index in self.early:
            self.early.discard(index)
        else:
            self.again.add(index)

    def begin_anew(self) -> None:
        """As if it had never begun, but for the number of its last attempt."""
        self.__init__(self.attempt)  # type: ignore[misc]

    def count(self, phase: str, by: int) -> None:
        """An instance of it has ended in ``phase``; or has not, after all (``by`` -1)."""
        self.ended += by
        self.failed += by * (phase not in ("success", "skipped"))


def output_hash(output: str | None) -> bytes:
    """8 bytes instead of an output; none of none."""
    return b"" if output is None else blake2b(output.encode(), digest_size=8).digest()
