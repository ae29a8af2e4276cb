"""How far behind the log the read model and the schedulers are, per partition."""

from __future__ import annotations

import threading
import time

import msgspec

from tidewheel.log.interface import INPUTS, JOURNALS, TRIGGERS, Log
from tidewheel.runtime.backlog import Note, read_note
from tidewheel_projections.reads import get_projector, list_positions, list_stopped_shards
from tidewheel_projections.views import PositionRow, ProjectorRow, StoppedShardRow
from tidewheel_services.api.database import ReadModel

#: Looking asks the log for every partition's end; what is younger than this is good enough for people and scrapes.
FRESH_S = 1.0


class JournalLag(msgspec.Struct, frozen=True, kw_only=True):
    """One journal partition and how far the read model has followed it."""

    topic: str
    partition: int
    end_offset: int
    #: The next offset the read model will take in.
    projected_offset: int
    lag: int
    #: The number of the last event in it; the last part of a position.
    shard_seq: int
    #: When that event was decided.
    last_at: str | None
    #: Why the read model follows this partition no further; empty: it does.
    stopped: str


class PostponedDag(msgspec.Struct, frozen=True, kw_only=True):
    """One DAG whose triggers wait."""

    dag: str
    first_offset: int
    last_offset: int


class InputLag(msgspec.Struct, frozen=True, kw_only=True):
    """One input partition and how far the shard's owner has decided it."""

    topic: str
    partition: int
    end_offset: int
    #: None: no owner ever committed there.
    committed_offset: int | None
    lag: int
    #: The shard holds so many runs that its triggers are not read for now; commands always are.
    paused: bool
    #: DAGs with too many waiting runs: their triggers between these offsets were passed over and wait.
    postponed: tuple[PostponedDag, ...]


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, with sums."""

    partitions: int
    projection_lag: int
    input_lag: int
    #: Shards whose triggers are not read for now, and DAGs whose triggers wait.
    paused_shards: int
    postponed_dags: int
    #: The projector that writes the read model, and for how long nothing was heard of it.
    projector: ProjectorRow | None
    #: Shards whose owner stopped them, because their journal does not prove itself; all others go on.
    stopped_shards: tuple[StoppedShardRow, ...]
    journals: tuple[JournalLag, ...]
    inputs: tuple[InputLag, ...]


class LagWatch:
    """Measures, at most once in ``FRESH_S`` however many ask."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._measured: Lag | None = None
        self._at = 0.0

    def measure(self, reads: ReadModel) -> Lag:
        """The lag now. Raises ``LogError``, and what ``ReadModel.read`` raises."""
        with self._lock:
            if self._measured is None or time.monotonic() - self._at > FRESH_S:
                self._measured = self._look(
                    *reads.read(lambda c: (list_positions(c), get_projector(c), list_stopped_shards(c)))
                )
                self._at = time.monotonic()
            return self._measured

    def _look(
        self, positions: list[PositionRow], projector: ProjectorRow | None, stopped: list[StoppedShardRow]
    ) -> Lag:
        seen = {(row.topic, row.partition): row for row in positions}
        journals: list[JournalLag] = []
        inputs: list[InputLag] = []
        for partition in range(self._log.partitions):
            for topic in JOURNALS:
                end = self._log.end_offset(topic, partition)
                row = seen.get((topic, partition))
                offset = row.next_offset if row else 0
                journals.append(
                    JournalLag(
                        topic=topic,
                        partition=partition,
                        end_offset=end,
                        projected_offset=offset,
                        lag=max(0, end - offset),
                        shard_seq=row.shard_seq if row else 0,
                        last_at=row.last_at if row else None,
                        stopped=row.stopped if row else "",
                    )
                )
            committed = self._log.committed(partition)
            note = read_note(self._log.noted(partition))
            for topic in INPUTS:
                end = self._log.end_offset(topic, partition)
                done = committed.get(topic)
                start = self._log.start_offset(topic, partition) if done is None else done
                inputs.append(
                    InputLag(
                        topic=topic,
                        partition=partition,
                        end_offset=end,
                        committed_offset=done,
                        lag=max(0, end - start),
                        paused=topic == TRIGGERS and note.full,
                        postponed=_postponed(note) if topic == TRIGGERS else (),
                    )
                )
        return Lag(
            partitions=self._log.partitions,
            projection_lag=sum(entry.lag for entry in journals),
            input_lag=sum(entry.lag for entry in inputs),
            paused_shards=sum(entry.paused for entry in inputs),
            postponed_dags=sum(len(entry.postponed) for entry in inputs),
            projector=projector,
            stopped_shards=tuple(stopped),
            journals=tuple(journals),
            inputs=tuple(inputs),
        )


def _postponed(note: Note) -> tuple[PostponedDag, ...]:
    return tuple(
        PostponedDag(dag=dag, first_offset=extent.first, last_offset=extent.last)
        for dag, extent in sorted(note.postponed.items())
    )
