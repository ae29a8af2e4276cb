"""Striking a process and measuring how long its shards start nothing new."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.outcome import Outcome
from tests.chaos.site import Site

#: A shard that starts nothing for so long after a fault counts as this late, and as silent.
PATIENCE_S = 40.0


def strike(
    site: Site,
    outcome: Outcome,
    shards: frozenset[int],
    blow: Callable[[], object],
    after: Callable[[], object] = lambda: None,
) -> Outcome:
    """Do ``blow``, at once ``after``, and wait for the first new starts; ``outcome`` gets what was measured."""
    with site.journal.watch(shards) as watch:
        blow()
        watch.begin()
        after()
        watch.done.wait(PATIENCE_S)
        outcome.failover_s = dict(watch.found)
    outcome.silent = tuple(sorted(shards - outcome.failover_s.keys()))
    outcome.failover_s.update(dict.fromkeys(outcome.silent, PATIENCE_S))
    return outcome
