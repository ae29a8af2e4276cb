"""Messages that travel beside commands, events and mail: log chunks, dead letters, snapshots, and public trigger
records."""

from __future__ import annotations

import msgspec


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a task's output, shipped while it runs. Text is what the task wrote, secrets masked."""

    dag: str
    run_id: str
    task: str
    attempt: int
    #: Number of the chunk within the attempt, from 0.
    chunk: int
    at: int
    #: ``stdout``, ``stderr`` or ``system`` (the worker's own remarks)
    stream: str
    text: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record that could not be decoded or applied, kept whole."""

    at: int
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    #: ``undecodable``, ``unknown_dag``, ``invalid``, ``failed``; ``expression`` of a record that a trigger cannot
    #: judge; ``undelivered`` of a notification
    code: str
    reason: str


class TriggerRun(msgspec.Struct, frozen=True, kw_only=True):
    """A public request on ``triggers`` to run a DAG: Avro, or JSON ``{"dag": …, "run_id"?, "id"?, "inputs"?: {…}}``.

    ``run_id`` names the run; without it ``id`` does (as ``kafka__<id>``); without both, topic, partition, offset and
    time do.
    """

    dag: str
    run_id: str | None = None
    id: str | None = None
    inputs: str = "{}"
    #: Only from a listener: the DAG's trigger, and the record it answers as ``topic/partition/offset``.
    trigger: str = ""
    origin: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The folded state of one aggregate after its event ``seq``, in parts of at most 48 KiB under keys
    ``kind/name/seq/part``.

    Only a whole set of parts with one ``seq`` counts. A snapshot whose ``format`` is not the reader's is ignored, and
    the journal read from further back instead.
    """

    #: ``dag`` or ``pool``
    kind: str
    name: str
    format: str
    seq: int
    #: Number of this part, from 0, and of all parts.
    part: int
    parts: int
    #: This part of the MessagePack of ``core.state``
    state: bytes
    #: Number of the aggregate among those of its shard, from 0 without gap; -1: written before there were numbers.
    number: int = -1
    #: Offset on ``triggers`` of the last one that this DAG has answered; -1: none that is known.
    trigger: int = -1
    #: Proves that the record is as it was written (``runtime.seals``).
    seal: int = 0


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshots of every aggregate of the shard cover its journals up to here, so a recovery reads on from these
    offsets."""

    shard: int
    format: str
    events_offset: int
    events_shard_seq: int
    events_chain: bytes
    pool_events_offset: int
    pool_events_shard_seq: int
    pool_events_chain: bytes
    #: The writer's term at that point
    writer: int
    #: How many aggregates have snapshots, numbered from 0; if one of them is missing, the checkpoint does not hold.
    aggregates: int = -1
    #: Sum of ``seq`` over all aggregates as of these places: what a recovery must come to. -1: not known.
    seqs: int = -1
    #: Offset on ``commands`` of the last one that each journal answers up to here; -1: none that is known.
    events_command: int = -1
    pool_events_command: int = -1
    #: Proves that the record is as it was written (``runtime.seals``).
    seal: int = 0
