"""Somebody who wants to change a run of long ago says what it came to: by its journal, or wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewheel.core import events as e
from tidewheel.core.digests import digest_in
from tidewheel.core.recall import CannotRecall, recall
from tidewheel.core.state import Dag
from tidewheel.log.interface import EVENTS
from tidewheel.runtime.shard import AggregateKey, shard_of
from tidewheel.testing.simulation.decoding import event_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidewheel.testing.simulation.world import TroubledWorld


def told_of(world: TroubledWorld, dag: str, run_id: str) -> dict[str, Any]:
    """Of a run that is not kept any more: mostly what it came to, at times some of it or nothing."""
    rng = world.random
    if not _is_forgotten(world, dag, run_id) or rng.random() < 0.2:
        return {}
    try:
        said = recall(dag, _events_of(world, dag, run_id), lambda version: world.definitions[dag, version])
    except CannotRecall:
        return {}
    run, definition = said.run, said.definition
    if rng.random() < 0.2:
        at = rng.randrange(len(run))
        run = run[:at] + bytes([run[at] ^ (1 << rng.randrange(8))]) + run[at + 1 :]
    if rng.random() < 0.1:
        definition = rng.choice(["", *world.definitions.values()])
    return {"recalled": run, "definition": definition}


def _is_forgotten(world: TroubledWorld, dag: str, run_id: str) -> bool:
    """Whether somebody who owned its shard knows of the run that it has ended, and no more."""
    shards = [shard for process in world.processes for shard in process.shards.values()]
    states = [state for shard in shards if isinstance(state := shard.aggregates.get(AggregateKey("dag", dag)), Dag)]
    return any(
        digest_in(state.digests, run_id) is not None
        and run_id not in state.runs
        and run_id not in {run.run_id for run in state.kept}
        for state in states
    )


def _events_of(world: TroubledWorld, dag: str, run_id: str) -> Iterator[e.RunEvent]:
    name = run_id.encode()
    for record in world.log.records_of(EVENTS, shard_of(dag, world.log.partitions)):
        if record is not None and record.value is not None and name in record.value:
            event = event_in(record.value).event
            if isinstance(event, e.RunEvent) and (event.dag, event.run_id) == (dag, run_id):
                yield event
