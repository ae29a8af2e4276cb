"""An aggregate as bytes and back. Only facts are stored; every index and count is built again from them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from immutables import Map

from tidewheel.core.attempt import AttemptKey
from tidewheel.core.backfill import Backfill
from tidewheel.core.coverage import Era, Span
from tidewheel.core.fold.pool import head_place, share_needs
from tidewheel.core.fold.run import place_of
from tidewheel.core.fold.task import ready_place
from tidewheel.core.graph import Tally, define
from tidewheel.core.mapping import Fan
from tidewheel.core.ordered import Ordered
from tidewheel.core.parent import Parent
from tidewheel.core.state import (
    Aggregate,
    Dag,
    EndedRun,
    Pool,
    PoolWorker,
    QueuePlace,
    RunState,
    SlotLease,
    Stop,
    TaskState,
    Waiting,
)
from tidewheel.core.transitions import ACTIVE
from tidewheel.core.waits import Wait, Watcher
from tidewheel.core.workflow import RunEnd, Schedule


class _StoredEra(msgspec.Struct, frozen=True):
    schedule: Schedule
    spans: list[Span]
    forgotten: int


class _StoredDag(msgspec.Struct, frozen=True):
    dag: str
    seq: int
    version: str
    definitions: dict[str, str]
    paused: bool
    removed: bool
    cursor: int | None
    answered: int | None
    runs: list[RunState]
    created: int
    held: int
    finished: list[tuple[int, str]]
    ended: int
    trigger_since: Map[str, int] = Map()
    backfills: tuple[Backfill, ...] = ()
    backfills_started: int = 0
    coverage: tuple[_StoredEra, ...] = ()
    last_ends: tuple[tuple[str, RunEnd], ...] = ()
    watchers: Map[str, tuple[Watcher, ...]] = Map()
    kept: tuple[EndedRun, ...] = ()
    digests: tuple[bytes, ...] = ()


class _StoredPool(msgspec.Struct, frozen=True):
    pool: str
    seq: int
    slots: int | None
    description: str
    arrivals: int
    workers: dict[str, PoolWorker]
    waiting: list[Waiting]
    leases: list[SlotLease]
    turn: AttemptKey | None = None
    given_back: Map[str, int] = Map()


#: Every struct that is stored.
_STORED = (
    _StoredDag,
    _StoredPool,
    RunState,
    EndedRun,
    TaskState,
    Stop,
    PoolWorker,
    Waiting,
    SlotLease,
    Tally,
    Fan,
    Wait,
    Watcher,
    Parent,
    _StoredEra,
    Backfill,
)


def _shape() -> str:
    parts = [
        f"{struct.__name__}({', '.join(f'{name}: {kind}' for name, kind in struct.__annotations__.items())})"
        for struct in _STORED
    ]
    return hashlib.blake2b("; ".join(parts).encode(), digest_size=8).hexdigest()


#: Changes by itself with the shape of what is stored. A snapshot of a format that is not read any more is ignored and
#: the journal folded instead.
FORMAT = _shape()

#: Older formats that are read all the same: what brings their plain data (kind, data) to today's shape. A shape that
#: only lacks fields which have defaults needs ``unchanged``. Who has trimmed a journal lives on these.
UPGRADES: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {}


def unchanged(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The upgrade of a format whose data today's shape reads as it is."""
    return data


def is_readable(found: str) -> bool:
    """Whether snapshots of this format can be read."""
    return found == FORMAT or found in UPGRADES


def _plain(value: Any) -> Any:
    if isinstance(value, Map):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no place in a snapshot")


def _rich(kind: Any, value: Any) -> Any:
    return Map(msgspec.convert(value, dict[kind.__args__], dec_hook=_rich))  # type: ignore[misc]


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_ordered = msgspec.msgpack.Encoder(order="deterministic")
_dag_decoder = msgspec.msgpack.Decoder(_StoredDag, dec_hook=_rich)
_pool_decoder = msgspec.msgpack.Decoder(_StoredPool, dec_hook=_rich)


def encode_snapshot(state: Aggregate) -> bytes:
    """MessagePack of what the aggregate's events came to."""
    if isinstance(state, Dag):
        return _encoder.encode(
            _StoredDag(
                dag=state.dag,
                seq=state.seq,
                version=state.version,
                definitions={version: definition.source for version, definition in state.definitions.items()},
                paused=state.paused,
                removed=state.removed,
                cursor=state.cursor,
                answered=state.answered,
                runs=sorted(state.runs.values(), key=lambda run: run.order),
                created=state.created,
                held=state.held,
                finished=sorted(state.finished_order.items()),
                ended=state.ended,
                trigger_since=state.trigger_since,
                backfills=state.backfills,
                backfills_started=state.backfills_started,
                coverage=tuple(_StoredEra(era.schedule, list(era.spans), era.forgotten) for era in state.coverage),
                last_ends=state.last_ends,
                watchers=state.watchers,
                kept=state.kept,
                digests=state.digests,
            )
        )
    return _encoder.encode(
        _StoredPool(
            pool=state.pool,
            seq=state.seq,
            slots=state.slots,
            description=state.description,
            arrivals=state.arrivals,
            workers=dict(state.workers),
            waiting=sorted(state.waiting.values(), key=lambda item: item.arrival),
            leases=sorted(state.leases.values(), key=lambda lease: lease.key),
            turn=state.turn,
            given_back=state.given_back,
        )
    )


def state_hash(state: Aggregate) -> str:
    """16 hex digits that two equal states share, on any machine and in any release with this ``FORMAT``."""
    stored = msgspec.msgpack.decode(encode_snapshot(state))
    return hashlib.blake2b(_ordered.encode(stored), digest_size=8).hexdigest()


def decode_snapshot(kind: str, data: bytes, written: str = FORMAT) -> Aggregate:
    """The aggregate (``kind``: ``dag`` or ``pool``) from bytes of the format ``written``, which must be readable.

    Raises ``msgspec.DecodeError`` if the bytes are none of this format.
    """
    if written != FORMAT:
        data = _encoder.encode(UPGRADES[written](kind, msgspec.msgpack.decode(data)))
    if kind == "dag":
        return _dag(_dag_decoder.decode(data))
    return _pool(_pool_decoder.decode(data))


def _dag(stored: _StoredDag) -> Dag:
    ready = [
        ready_place(run, name, task.ready_order)
        for run in stored.runs
        for name, task in run.tasks.items()
        if task.ready_order is not None
    ]
    return Dag(
        dag=stored.dag,
        seq=stored.seq,
        version=stored.version,
        definitions=Map({version: define(version, source) for version, source in stored.definitions.items()}),
        runs_of=Map(Counter([*(run.version for run in stored.runs), *(run.version for run in stored.kept)])),
        paused=stored.paused,
        removed=stored.removed,
        cursor=stored.cursor,
        answered=stored.answered,
        runs=Map({run.run_id: run for run in stored.runs}),
        created=stored.created,
        queued_runs=Ordered(place_of(run) for run in stored.runs if run.phase == "queued" and not run.backfill_id),
        queued_backfill=Ordered(place_of(run) for run in stored.runs if run.phase == "queued" and run.backfill_id),
        live_of=Map(Counter(run.backfill_id for run in stored.runs if run.backfill_id)),
        backfills=stored.backfills,
        backfills_started=stored.backfills_started,
        coverage=tuple(Era(era.schedule, Ordered(era.spans), era.forgotten) for era in stored.coverage),
        queued_scheduled=sum(run.phase == "queued" and run.kind == "scheduled" for run in stored.runs),
        input_bytes=sum(len(run.inputs) for run in stored.runs),
        held=stored.held,
        ready=Ordered(ready),
        active_tasks=sum(task.phase in ACTIVE for run in stored.runs for task in run.tasks.values()),
        finished=Map({run_id: order for order, run_id in stored.finished}),
        finished_order=Map(dict(stored.finished)),
        ended=stored.ended,
        trigger_since=stored.trigger_since,
        last_ends=stored.last_ends,
        watchers=stored.watchers,
        kept=stored.kept,
        digests=stored.digests,
    )


def _pool(stored: _StoredPool) -> Pool:
    places: dict[str, list[QueuePlace]] = {}
    for item in stored.waiting:
        places.setdefault(item.key[0], []).append(item.place)
    queues = {dag: Ordered(items) for dag, items in places.items()}
    live: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for lease in stored.leases:
        live[lease.key[0]] += lease.pool_slots
        held[lease.worker] += lease.pool_slots
    offered = sum(worker.slots for worker in stored.workers.values() if not worker.suspended)
    pool = Pool(
        pool=stored.pool,
        seq=stored.seq,
        slots=stored.slots,
        description=stored.description,
        arrivals=stored.arrivals,
        workers=Map(stored.workers),
        waiting=Map({item.key: item for item in stored.waiting}),
        leases=Map({lease.key: lease for lease in stored.leases}),
        turn=stored.turn,
        given_back=stored.given_back,
        queues=Map(queues),
        offered=offered,
        used=sum(lease.pool_slots for lease in stored.leases),
        live=Map(live),
        held=Map(held),
        free=Ordered(
            (held[name] - worker.slots, name) for name, worker in stored.workers.items() if not worker.suspended
        ),
        widths=Ordered((-worker.slots, name) for name, worker in stored.workers.items()),
    )
    needs = {dag: share_needs(pool, dag) for dag in queues}
    return msgspec.structs.replace(
        pool,
        heads=Ordered(head_place(pool, dag) for dag in queues if needs[dag] <= pool.capacity),
        shares=Ordered((needed, dag) for dag, needed in needs.items() if needed),
    )


def empty(kind: str, name: str) -> Aggregate:
    """The aggregate before its first event."""
    return Dag(dag=name) if kind == "dag" else Pool(pool=name)
