"""What the listener knows of DAGs: their triggers, by following the journal.

Snapshots say most of it, so a start reads minutes of journal and not years. Nothing is proved here: whoever decides
proves. But what a repair declared void is no deployment, so a repair has everything read anew.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import structlog

from tidewheel.core.events import DagDeployed, DagRemoved, JournalRepaired
from tidewheel.core.state import Dag
from tidewheel.core.triggers import takes_since
from tidewheel.core.workflow import Trigger, Workflow
from tidewheel.log.interface import EVENTS, SNAPSHOTS, Log, LogError, LogUnavailable, Reader, Record
from tidewheel.runtime.repairs import NO_PROGRESS_S, in_force, is_repair, read_to_end, repair_in
from tidewheel.runtime.shard import AggregateKey, Shard
from tidewheel.runtime.snapshots import restore
from tidewheel.wire.catalog import versions
from tidewheel.wire.codec import DecodeError, decode_event
from tidewheel.wire.compiled import HEADER_SIZE

#: Shards whose snapshots are in memory at the same time.
_SHARDS_AT_ONCE = 8
_READ_MAX = 5_000

_log = structlog.get_logger("tidewheel.listener")


class Subscription(msgspec.Struct, frozen=True):
    """One trigger of one DAG; records from the instant ``since`` (ms) on are its own."""

    dag: str
    trigger: Trigger
    since: int


class _Deployed(msgspec.Struct, frozen=True):
    """What is kept of one DAG: as of its event ``seq``."""

    seq: int
    triggers: Mapping[str, Trigger]
    since: Mapping[str, int]


class Definitions:
    """The triggers of all DAGs. ``read_on`` before asking."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._dags: dict[str, _Deployed] = {}
        self._by_topic: dict[str, list[Subscription]] | None = None
        self._reader: Reader | None = None

    @property
    def triggers(self) -> int:
        """How many there are."""
        return sum(map(len, self._index().values()))

    def read_on(self) -> None:
        """Take in what the journal says up to its end of now. Raises ``LogError``."""
        if self._reader is None:
            self._load()
            return
        for record in self._told(self._reader):
            if is_repair(record.value or b""):
                _log.info("a journal was repaired; definitions are read anew")
                self.close()
                self._load()
                return
            self._take(record)

    def topics(self) -> Mapping[str, int]:
        """Every topic that a trigger names, with the instant of the first one's beginning (ms)."""
        return {topic: found[0].since for topic, found in self._index().items()}

    def of_topic(self, topic: str) -> list[Subscription]:
        """The triggers on a topic, earliest first."""
        return self._index().get(topic, [])

    @property
    def most_on_a_topic(self) -> int:
        """Triggers on the topic that has most."""
        return max(map(len, self._index().values()), default=0)

    def close(self) -> None:
        """Let the reader go."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _index(self) -> dict[str, list[Subscription]]:
        if self._by_topic is None:
            self._by_topic = {}
            for dag, deployed in self._dags.items():
                for name, trigger in deployed.triggers.items():
                    one = Subscription(dag, trigger, deployed.since[name])
                    self._by_topic.setdefault(trigger.kafka.topic, []).append(one)
            for found in self._by_topic.values():
                found.sort(key=lambda one: (one.since, one.dag, one.trigger.id))
        return self._by_topic

    def _load(self) -> None:
        """Everything anew, from snapshots and what the journal says beyond them."""
        self._dags.clear()
        self._by_topic = None
        starts: dict[tuple[str, int], int] = {}
        for first in range(0, self._log.partitions, _SHARDS_AT_ONCE):
            numbers = range(first, min(first + _SHARDS_AT_ONCE, self._log.partitions))
            for shard in self._shards(numbers):
                starts[EVENTS, shard.number] = shard.heads[EVENTS].offset
        for place, begins in self._log.start_offsets(starts).items():
            if begins > starts[place]:
                raise LogError(
                    f"{place[0]}/{place[1]} begins at offset {begins}, and no snapshot that can be read holds what was "
                    "deleted before it: see docs/upgrading.md"
                )
        reader = self._log.reader(starts)
        try:
            for record in _standing(list(self._told(reader))):
                self._take(record)
        except BaseException:
            reader.close()
            raise
        self._reader = reader

    def _told(self, reader: Reader) -> Iterator[Record]:
        """What tells of definitions up to the journal's end of now."""
        ends = self._log.end_offsets(reader.positions())
        deadline = time.monotonic() + NO_PROGRESS_S
        while any(position < ends[place] for place, position in reader.positions().items()):
            records = reader.read(_READ_MAX, 0.05)
            if records:
                deadline = time.monotonic() + NO_PROGRESS_S
            elif time.monotonic() > deadline:
                raise LogUnavailable(f"{EVENTS}: nothing to read for {NO_PROGRESS_S:.0f} s before the end")
            yield from (record for record in records if _is_told(record))

    def _shards(self, numbers: Iterable[int]) -> Iterator[Shard]:
        found: dict[int, list[Record]] = {number: [] for number in numbers}
        for record in read_to_end(self._log, {(SNAPSHOTS, number): 0 for number in found}):
            found[record.partition].append(record)
        for number, records in found.items():
            shard = Shard(number)
            restore(shard, records)
            for key, state in shard.aggregates.items():
                self._restore(key, state)
            yield shard

    def _restore(self, key: AggregateKey, state: object) -> None:
        if isinstance(state, Dag) and state.version:
            triggers = {} if state.removed else state.definition.workflow.trigger_by_id
            self._keep(key.name, _Deployed(state.seq, triggers, state.trigger_since))

    def _take(self, record: Record) -> None:
        try:
            recorded = decode_event(record.value or b"")
        except DecodeError as error:
            _log.warning("no event of ours", place=f"{record.topic}/{record.partition}/{record.offset}", why=str(error))
            return
        event = recorded.event
        if not isinstance(event, DagDeployed | DagRemoved):
            return
        before = self._dags.get(event.dag)
        if before is not None and recorded.seq <= before.seq:
            return
        if isinstance(event, DagRemoved):
            self._keep(event.dag, _Deployed(recorded.seq, {}, {}))
            return
        triggers = _triggers(event)
        known = before or _Deployed(0, {}, {})
        since = takes_since(known.triggers, known.since, triggers, event.at)
        self._keep(event.dag, _Deployed(recorded.seq, triggers, since))

    def _keep(self, dag: str, deployed: _Deployed) -> None:
        """Of a DAG without triggers only that it has none is remembered, for the order of its events."""
        before = self._dags.get(dag)
        self._dags[dag] = deployed
        if deployed.triggers or (before is not None and before.triggers):
            self._by_topic = None


def _triggers(event: DagDeployed) -> Mapping[str, Trigger]:
    """Those of the definition deployed. Most have none, and are not parsed."""
    if '"triggers"' not in event.definition:
        return {}
    try:
        return msgspec.json.decode(event.definition, type=Workflow).trigger_by_id
    except (msgspec.DecodeError, RecursionError) as error:
        _log.error("a definition cannot be read; its triggers are left out", dag=event.dag, why=str(error))
        return {}


def _standing(told: list[Record]) -> Iterator[Record]:
    """Those that no repair declared void."""
    repairs = in_force(found for record in told if (found := repair_in(record)) is not None)
    for record in told:
        if not any(repair.partition == record.partition and repair.voids(record.offset) for repair in repairs):
            yield record


def _is_told(record: Record) -> bool:
    """Whether the record tells something of definitions: looked up, not decoded."""
    return record.value is not None and record.value[2:HEADER_SIZE] in _fingerprints()


@functools.cache
def _fingerprints() -> frozenset[bytes]:
    wanted = (DagDeployed, DagRemoved, JournalRepaired)
    return frozenset(fingerprint for fingerprint, version in versions().items() if version.message in wanted)
