"""The effects ledger: what tasks themselves say they did, in a file that the engine knows nothing of."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Effect(NamedTuple):
    """A task that ran says that it began (``start``) or ended well (``end``)."""

    what: str
    dag: str
    run_id: str
    task: str
    attempt: int
    worker: str
    at_ms: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The attempt."""
        return self.dag, self.run_id, self.task, self.attempt


def read_ledger(path: Path) -> list[Effect]:
    """Every line, in the order written."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        what, dag, run_id, task, attempt, worker, at_ms = line.split(" ")
        found.append(Effect(what, dag, run_id, task, int(attempt), worker, int(at_ms)))
    return found
