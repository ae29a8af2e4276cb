"""The kinds of faults, what each means, and the points of a process's turn at which it can be hit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

#: Where a turn of the shard loop can be hit, in its order. ``decide`` lies between poll and commit, also within a
#: decision; ``acknowledge``: the log has committed, the process has not heard of it; ``adopt``: it has heard, and
#: memory has yet to follow; ``recover``: while snapshots and journal are read.
SchedulerPoint: TypeAlias = Literal[
    "poll",
    "recover",
    "decide",
    "commit",
    "acknowledge",
    "adopt",
    "mail",
    "mailed",
    "checkpoint",
    "checkpointed",
    "reset",
]
#: Where a turn of the projector can be hit: with rows folded but not written, written but not committed, committed.
ProjectorPoint: TypeAlias = Literal["fold", "write", "written"]
#: Where a turn of a listener can be hit: with records taken, some of their runs asked for, all of them, and with its
#: position said.
ListenerPoint: TypeAlias = Literal["take", "ask", "asked", "stood"]
#: And of a waiter: before it looks what is open, before each report, and after them.
WaiterPoint: TypeAlias = Literal["look", "report", "reported"]
OutsiderPoint: TypeAlias = ListenerPoint | WaiterPoint
Point: TypeAlias = SchedulerPoint | ProjectorPoint | OutsiderPoint

SCHEDULER_POINTS: tuple[SchedulerPoint, ...] = get_args(SchedulerPoint)
PROJECTOR_POINTS: tuple[ProjectorPoint, ...] = get_args(ProjectorPoint)
LISTENER_POINTS: tuple[ListenerPoint, ...] = get_args(ListenerPoint)
WAITER_POINTS: tuple[WaiterPoint, ...] = get_args(WaiterPoint)
OUTSIDER_POINTS: tuple[OutsiderPoint, ...] = (*LISTENER_POINTS, *WAITER_POINTS)

#: Every kind that a campaign counts; ``crash``, ``pause`` and ``log_away`` are counted by point: ``crash:commit``.
KINDS: Mapping[str, str] = {
    "crash": "a process dies at this point of its turn, and later comes back with an empty memory",
    "pause": "a process stops at this point of its turn while the others go on, and then goes on itself",
    "log_away": "what a process asks of the log at this point finds it away",
    "session_lost": "a scheduler's session ran out: its shards went to others, and it does not know yet",
    "position_lost": "the group's position on a shard comes back older than its journals, with what stands beside it",
    "scheduler_killed": "a scheduler dies between two turns",
    "commit_aborted": "a commit fails and nothing is written",
    "commit_doubt_lost": "a commit's outcome stays open; in truth nothing was written",
    "commit_doubt_landed": "a commit's outcome stays open; in truth all was written",
    "clock_step": "one process's clock jumps forward or back",
    "clock_skew": "a process begins with a clock that is off",
    "sleep": "time passes and nobody acts",
    "snapshot_missing": "a record of the snapshots is gone",
    "snapshot_corrupt": "a record of the snapshots is damaged",
    "poison_command": "a record on commands that is no command, or an absurd one",
    "poison_trigger": "a record on triggers that is no trigger, or an absurd one",
    "wrong_partition": "a record lies on a partition that is not its key's",
    "report_lost": "what a worker says never arrives",
    "report_late": "what a worker says arrives late, after what it says later",
    "report_doubled": "what a worker says arrives twice",
    "report_foreign": "a report about an attempt that is none of the sender's",
    "record_repeated": "a record of the commands comes again, however old",
    "mail_lost": "mail is never read",
    "mail_late": "mail is read late",
    "mail_doubled": "mail is read twice",
    "worker_killed": "a worker dies with all it has, and later comes back and knows nothing",
    "worker_paused": "a worker stops, and goes on after its leases may have ended",
    "pool_resized": "a pool's limit changes under load",
}
