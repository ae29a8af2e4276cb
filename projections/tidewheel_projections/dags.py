"""DAGs and their versions: what the events of a definition's life leave in ``dags`` and ``dag_versions``."""

from __future__ import annotations

import msgspec

from tidewheel.core import events as e
from tidewheel.core.workflow import DEFAULT_POOL


class Dag(msgspec.Struct):
    """A row of ``dags``."""

    dag: str
    version: str
    paused: bool
    removed: bool
    reason: str
    owner: str
    description: str
    tags: list[str]
    schedule: str | None
    slot_cursor: int | None
    tasks: int
    deployed_at: int
    updated_at: int
    actor: str
    partition: int
    shard_seq: int


class Version(msgspec.Struct):
    """A row of ``dag_versions``."""

    dag: str
    version: str
    definition: str
    source: str
    deployed_at: int
    actor: str
    shard_seq: int


class ActionOutline(msgspec.Struct, frozen=True):
    """What kind of action a task is."""

    type: str = ""


class TaskOutline(msgspec.Struct, frozen=True):
    """What a run's rows need to know of a task."""

    id: str
    pool: str = DEFAULT_POOL
    pool_slots: int = 1
    for_each: msgspec.Raw = msgspec.Raw(b"null")
    action: ActionOutline = ActionOutline()

    @property
    def mapped(self) -> bool:
        """Whether it runs once per item."""
        return bytes(self.for_each) != b"null"

    @property
    def switch(self) -> bool:
        """Whether it decides between branches."""
        return self.action.type == "switch"


class Outline(msgspec.Struct, frozen=True):
    """What the rows need to know of a definition. Keys that a later release adds are passed over."""

    tasks: tuple[TaskOutline, ...]
    description: str = ""
    owner: str = ""
    tags: tuple[str, ...] = ()
    #: JSON; empty: none
    schedule: msgspec.Raw = msgspec.Raw(b"")


_outlines = msgspec.json.Decoder(Outline)


def outline_of(definition: str) -> Outline:
    """Read a definition's canonical JSON. Raises ``msgspec.MsgspecError`` if it is none."""
    return _outlines.decode(definition)


def fold_dag_deployed(event: e.DagDeployed, outline: Outline, partition: int, shard_seq: int) -> Dag:
    """The definition is the current one."""
    return Dag(
        dag=event.dag,
        version=event.version,
        paused=event.paused,
        removed=False,
        reason="",
        owner=outline.owner,
        description=outline.description,
        tags=list(outline.tags),
        schedule=bytes(outline.schedule).decode() or None,
        slot_cursor=event.cursor,
        tasks=len(outline.tasks),
        deployed_at=event.at,
        updated_at=event.at,
        actor=event.actor,
        partition=partition,
        shard_seq=shard_seq,
    )


def version_of(event: e.DagDeployed, shard_seq: int) -> Version:
    """The version's row, which only its first deployment writes."""
    return Version(
        dag=event.dag,
        version=event.version,
        definition=event.definition,
        source=event.source,
        deployed_at=event.at,
        actor=event.actor,
        shard_seq=shard_seq,
    )


def fold_dag_changed(
    row: Dag, event: e.DagRemoved | e.DagPaused | e.DagUnpaused | e.SlotsSkipped, shard_seq: int
) -> None:
    """Removed, paused, unpaused, or its cursor moved on."""
    match event:
        case e.DagRemoved():
            row.removed = True
            row.reason = event.reason
        case e.DagPaused():
            row.paused = True
            row.reason = event.reason
        case e.DagUnpaused():
            row.paused = False
            row.reason = event.reason
        case e.SlotsSkipped():
            row.slot_cursor = event.last
    row.updated_at = event.at
    row.actor = event.actor
    row.shard_seq = shard_seq


def fold_slot_answered(row: Dag, slot: int | None, shard_seq: int) -> None:
    """A scheduled run moved the cursor."""
    row.slot_cursor = slot
    row.shard_seq = shard_seq
