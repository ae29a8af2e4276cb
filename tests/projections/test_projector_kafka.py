"""The projector on a real broker: transactions, their markers, aborted ones, and a restart."""

from __future__ import annotations

import secrets
import time

import psycopg
import pytest

from tests.projections.following import following, scalar, tables, wait_until
from tests.projections.journals import START, JournalWriter, deployed, run_of
from tidewheel.core import events as e
from tidewheel.log.interface import Append, Batch, Owner
from tidewheel.log.opening import open_log
from tidewheel_projections import projector as module
from tidewheel_projections.reads import list_positions
from tidewheel_projections.rebuild import verify

TASKS = ("extract", "load", "report")


def owned(owner: Owner, partitions: int) -> Batch:
    """A batch once the owner has every shard."""
    deadline = time.monotonic() + 20
    while len((batch := owner.poll(1, 0.2)).shards) < partitions:
        assert time.monotonic() < deadline, "the owner never gets its shards"
    return batch


@pytest.mark.kafka
@pytest.mark.postgres
def test_it_follows_committed_transactions_to_lag_0(
    kafka_address: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C119: the last entry of each partition is a marker, and the lag still comes down to 0."""
    monkeypatch.setattr(module, "BEAT_S", 0.1)
    log = open_log(f"kafka://{kafka_address}?prefix=p{secrets.token_hex(4)}.&partitions=2")
    log.create_topics()
    writer = JournalWriter(log)
    owner = log.owner("scheduler")
    batch = owned(owner, 2)
    try:
        events: list[e.AnyEvent] = [deployed("etl", TASKS), deployed("elt", TASKS)]
        events += [*run_of("etl", "r1", TASKS, START, beats=1), *run_of("elt", "r1", TASKS, START)]
        with following(log, dsn) as projector:
            for event in events[:10]:
                owner.commit(batch, [_append(writer, event)])
                batch = owner.poll(1, 0)
            wait_until(lambda: projector.applied == 10, "the first events are projected", 20)
        with following(log, dsn) as again, psycopg.connect(dsn, autocommit=True) as connection:
            owner.commit(batch, [_append(writer, event) for event in events[10:]])
            wait_until(lambda: again.applied == len(events) - 10, "the rest is projected", 20)
            wait_until(
                lambda: (
                    (rows := list_positions(connection)) != []
                    and sum(row.end_offset for row in rows) > len(events)
                    and all(row.behind == 0 for row in rows)
                ),
                "the lag is 0",
                20,
            )
        assert scalar(dsn, "SELECT count(*) FROM runs WHERE state = 'success'") == 2
        assert len(tables(dsn)["attempts"]) == 6
        assert verify(dsn, log) == []
    finally:
        owner.close()
        log.close()


def _append(writer: JournalWriter, event: e.AnyEvent) -> Append:
    topic, key, partition, value = writer.encoded(event)
    return Append(topic, key, value, partition=partition)
