"""The witness of one pool: who waits, who holds slots, and that nobody is given more than there is, nor a DAG more than
its share (invariant 5)."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel.core import events as e
from tidewheel.core.attempt import AttemptKey, attempt_key
from tidewheel.runtime.witness.findings import Findings, Place


class PoolWitness:
    """Follows one pool's events."""

    __slots__ = (
        "_findings",
        "_held",
        "_limit",
        "_live",
        "_name",
        "_shares",
        "_suspended",
        "_used",
        "_workers",
        "leases",
        "waiting",
    )

    def __init__(self, name: str, findings: Findings) -> None:
        self._name = name
        self._findings = findings
        self._limit: int | None = None
        self._workers: dict[str, int] = {}
        self._suspended: set[str] = set()
        self._held: dict[str, int] = {}
        self._used = 0
        #: Slots that each DAG holds, and the percentage that bounds each attempt that waits, if one does.
        self._live: dict[str, int] = {}
        self._shares: dict[AttemptKey, int] = {}
        self.waiting: dict[AttemptKey, int] = {}
        #: Who holds slots, since which record: slots and worker.
        self.leases: dict[AttemptKey, tuple[int, str, Place]] = {}

    def apply(self, event: e.PoolEvent) -> None:
        """Judge the next event, and go on from it."""
        _APPLY[type(event)](self, event)

    def _configured(self, event: e.PoolConfigured) -> None:
        self._limit = event.slots

    def _joined(self, event: e.WorkerJoined) -> None:
        self._workers[event.worker] = event.slots
        self._suspended.discard(event.worker)

    def _renewed(self, event: e.WorkerRenewed) -> None:
        self._known(event)
        self._suspended.discard(event.worker)

    def _suspend(self, event: e.WorkerSuspended) -> None:
        self._known(event)
        self._suspended.add(event.worker)

    def _left(self, event: e.WorkerLeft) -> None:
        self._known(event)
        self._workers.pop(event.worker, None)
        self._suspended.discard(event.worker)

    def _known(self, event: e.WorkerRenewed | e.WorkerSuspended | e.WorkerLeft) -> None:
        if event.worker not in self._workers:
            self._findings.add(5, f"{type(event).__name__}: pool '{self._name}' has no worker '{event.worker}'")

    def _enqueued(self, event: e.TaskEnqueued) -> None:
        key = attempt_key(event)
        if key in self.waiting or key in self.leases:
            self._findings.add(5, f"{_named(key)} joins pool '{self._name}' where it is already")
            return
        self.waiting[key] = event.pool_slots
        if event.max_pool_share is not None:
            self._shares[key] = event.max_pool_share

    def _granted(self, event: e.SlotGranted) -> None:
        key = attempt_key(event)
        slots = self.waiting.pop(key, None)
        if slots is None:
            self._findings.add(5, f"{_named(key)} is granted slots of pool '{self._name}' without waiting for them")
            return
        self._used += slots
        self._share_kept(key, slots)
        held = self._held.get(event.worker, 0) + slots
        self._held[event.worker] = held
        self.leases[key] = (slots, event.worker, self._findings.at)
        if self._limit is not None and self._used > self._limit:
            self._findings.add(5, f"{self._used} slots of pool '{self._name}' are in use; it has {self._limit}")
        offered = self._workers.get(event.worker)
        if offered is None or event.worker in self._suspended:
            state = "does not serve" if offered is None else "is suspended in"
            self._findings.add(5, f"{_named(key)} is granted to worker '{event.worker}', which {state} the pool")
        elif held > offered:
            self._findings.add(5, f"worker '{event.worker}' holds {held} slots; it offered {offered}")

    def _share_kept(self, key: AttemptKey, slots: int) -> None:
        """A DAG that held something already holds no more than its share of what the pool has just now."""
        before = self._live.get(key[0], 0)
        self._live[key[0]] = before + slots
        share = self._shares.pop(key, None)
        if share is None or not before:
            return
        offered = sum(size for worker, size in self._workers.items() if worker not in self._suspended)
        there = offered if self._limit is None or offered < self._limit else self._limit
        if (before + slots) * 100 > share * there:
            what = f"{before + slots} of {there} slots of pool '{self._name}'"
            self._findings.add(5, f"DAG '{key[0]}' holds {what}; its share is {share}%")

    def _released(self, event: e.SlotReleased) -> None:
        key = attempt_key(event)
        self._shares.pop(key, None)
        if self.waiting.pop(key, None) is not None:
            return
        lease = self.leases.pop(key, None)
        if lease is None:
            self._findings.add(5, f"{_named(key)} is released from pool '{self._name}', where it is not")
            return
        slots, worker, _ = lease
        self._used -= slots
        self._live[key[0]] -= slots
        if not self._live[key[0]]:
            del self._live[key[0]]
        self._held[worker] -= slots
        if not self._held[worker]:
            del self._held[worker]

    def _refused(self, event: e.SlotRefused) -> None:
        key = attempt_key(event)
        self._shares.pop(key, None)
        if self.waiting.pop(key, None) is None:
            self._findings.add(5, f"{_named(key)} is refused by pool '{self._name}', where it does not wait")
        if not event.reason:
            self._findings.add(9, f"{_named(key)} is refused without a reason")


_APPLY: dict[type[e.Event], Callable[..., None]] = {
    e.PoolConfigured: PoolWitness._configured,
    e.WorkerJoined: PoolWitness._joined,
    e.WorkerRenewed: PoolWitness._renewed,
    e.WorkerSuspended: PoolWitness._suspend,
    e.WorkerLeft: PoolWitness._left,
    e.TaskEnqueued: PoolWitness._enqueued,
    e.SlotGranted: PoolWitness._granted,
    e.SlotReleased: PoolWitness._released,
    e.SlotRefused: PoolWitness._refused,
}


def _named(key: AttemptKey) -> str:
    return f"{key[0]}/{key[1]}/{key[2]} attempt {key[3]}"
