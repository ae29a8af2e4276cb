"""What the tables say of a run that has ended is what its DAG remembers of it."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.projections.following import project_all
from tests.projections.journals import JournalWriter, mixed_day
from tests.wire.samples import EVENTS, messages
from tidewheel.core import events as e
from tidewheel.core.digests import digest_in, digest_of
from tidewheel.core.graph import define
from tidewheel.core.recall import RECALLED_BYTES_MAX, CannotRecall, recall
from tidewheel.core.state import Dag
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import Shard
from tidewheel.testing.simulation.decoding import decoding_once
from tidewheel.testing.simulation.mishaps import Mishaps
from tidewheel.testing.simulation.season import quietly
from tidewheel.testing.simulation.world import TroubledWorld
from tidewheel_projections.audit import UNLISTED, audit_row
from tidewheel_projections.history import TooLarge, event_of, get_definition, list_run_history

LISTED = [kind for kind in EVENTS if issubclass(kind, e.RunEvent) and kind not in UNLISTED]
#: Told by tables of their own, or by nobody.
ELSEWHERE = {"definition": "", "recalled": None}


@pytest.mark.parametrize("kind", LISTED, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_an_audit_row_is_its_event(kind: type[e.RunEvent], data: st.DataObject) -> None:
    event = data.draw(messages(kind))
    if isinstance(event, e.RunCreated | e.RunRestarted | e.RunReopened):
        event = msgspec.structs.replace(event, inputs='{"day": "2026-01-31", "n":1.50}')
    # What says nothing is left out: an empty text where the default is none is no JSON, and never is in a journal.
    for field in msgspec.structs.fields(kind):
        if getattr(event, field.name) == "" and not field.required and field.name != "actor":
            event = msgspec.structs.replace(event, **{field.name: field.default})
    recorded = e.Recorded(event=event, seq=1, shard_seq=1, writer=1, cause="x", chain=b"")
    *_, actor, _, body = audit_row("events", 0, 0, recorded)
    names = ("dag", "run_id", "at", "task", "attempt", "output")
    columns = {name: getattr(event, name) for name in names if hasattr(event, name)}
    lost = {name: nothing for name, nothing in ELSEWHERE.items() if hasattr(event, name)}
    assert event_of(kind, {**columns, "actor": actor}, str(body)) == msgspec.structs.replace(event, **lost)


def troubled(seed: int) -> MemoryLog:
    """The log after a while of everything that the simulation has."""
    with decoding_once(), quietly():
        world = TroubledWorld(seed, faults=True)
        world.mishap = Mishaps(world, faults=True)
        world.play(2_000)
    return world.log


def states(log: MemoryLog) -> list[Dag]:
    """All DAGs, folded."""
    shards = [Shard(number) for number in range(log.partitions)]
    with quietly():
        bring_up_to_date(shards, log, lambda: 0)
    return [state for shard in shards for state in shard.aggregates.values() if isinstance(state, Dag)]


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(3))
def test_what_the_tables_say_a_run_came_to_is_what_its_dag_remembers(seed: int, dsn: str) -> None:
    log = troubled(Random(seed).randrange(2**63))
    project_all(log, dsn)
    told = forgotten = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        for dag in states(log):
            source_of = partial(get_definition, connection, dag.dag)
            for run_id in ended(connection, dag):
                said = recall(dag.dag, list_run_history(connection, dag.dag, run_id, RECALLED_BYTES_MAX), source_of)
                version = msgspec.msgpack.decode(said.run)["version"]
                told += 1
                forgotten += version not in dag.definitions
                digest = digest_of(said.run, define(version, said.definition))
                assert digest == digest_in(dag.digests, run_id), f"{dag.dag}/{run_id}"
    assert told > 10 and forgotten


@pytest.mark.postgres
def test_who_lags_behind_tells_nothing(dsn: str) -> None:
    project_all(MemoryLog(), dsn)
    with psycopg.connect(dsn, autocommit=True) as connection, pytest.raises(CannotRecall, match="nothing is known"):
        recall("d", list_run_history(connection, "d", "r", 0), partial(get_definition, connection, "d"))


@pytest.mark.postgres
def test_outputs_that_nobody_could_use_are_not_read(dsn: str) -> None:
    log = MemoryLog(partitions=4)
    mixed_day(JournalWriter(log))
    project_all(log, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert list(list_run_history(connection, "dag_0", "r0", 1_000))
        with pytest.raises(TooLarge, match="bytes; the limit is 5"):
            list(list_run_history(connection, "dag_0", "r0", 5))


def ended(connection: psycopg.Connection[Any], dag: Dag) -> list[str]:
    rows = connection.execute("SELECT run_id FROM tidewheel.runs WHERE dag = %s", (dag.dag,)).fetchall()
    return [run_id for (run_id,) in rows if run_id not in dag.runs]
