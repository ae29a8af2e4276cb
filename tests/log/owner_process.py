"""A scheduler reduced to its log: every command becomes one event. Run as a process that tests may stop and kill.

``python owner_process.py URL INSTANCE [--stop-before-commit]``: tells on stdout what happens to it, a line each.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import structlog

from tidewheel.log.interface import COMMANDS, EVENTS, Append, CommitAborted, CommitInDoubt, Fenced
from tidewheel.log.opening import open_log


class _StopsBeforeCommit:
    """A producer whose process stops once, when everything but the commit is done."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._stopped = False

    def __getattr__(self, name: str) -> Any:
        if name == "commit_transaction" and not self._stopped:
            self._stopped = True
            _tell("stopping")
            os.kill(os.getpid(), signal.SIGSTOP)
        return getattr(self._producer, name)


def _tell(what: str) -> None:
    print(what, flush=True)


def main(url: str, instance: str, stop_before_commit: bool) -> None:
    """Own until killed."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is for what we tell
    owner: Any = open_log(url).owner(instance)
    owned: set[int] = set()
    while True:
        batch = owner.poll(1_000, 0.2)
        if set(batch.shards) != owned:
            owned = set(batch.shards)
            _tell(f"owns {' '.join(str(shard) for shard in sorted(owned))}")
        if not batch.records:
            continue
        if stop_before_commit:
            stop_before_commit = False
            owner._transactions._producer = _StopsBeforeCommit(owner._transactions._producer)
        appends = [
            Append(EVENTS, record.key or b"", record.value, (("by", instance.encode()),), partition=record.partition)
            for record in batch.records
            if record.topic == COMMANDS
        ]
        try:
            owner.commit(batch, appends)
            _tell(f"committed {len(appends)}")
        except (Fenced, CommitAborted, CommitInDoubt) as error:
            _tell(type(error).__name__)
            owner.reset()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--stop-before-commit" in sys.argv)
