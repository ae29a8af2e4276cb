"""The fold: ``fold(state, event)`` gives the next state. It never decides, reads no clock and does no I/O.

A file per noun, a function per event; this is their register. A shipped event's fold is never edited: a new shape is
upcast at the wire, a new meaning is a new event.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidewheel.core import events as e
from tidewheel.core.fold.backfill import (
    fold_backfill_ended,
    fold_backfill_slots_skipped,
    fold_backfill_started,
    fold_backfill_switched,
)
from tidewheel.core.fold.dag import (
    fold_dag_deployed,
    fold_dag_paused,
    fold_dag_removed,
    fold_dag_unpaused,
    fold_slots_skipped,
)
from tidewheel.core.fold.journal import fold_journal_repaired
from tidewheel.core.fold.operation import fold_task_cancelled, fold_task_marked, fold_tasks_cleared
from tidewheel.core.fold.pool import (
    fold_pool_configured,
    fold_slot_granted,
    fold_slot_refused,
    fold_slot_released,
    fold_task_enqueued,
    fold_worker_joined,
    fold_worker_left,
    fold_worker_renewed,
    fold_worker_suspended,
)
from tidewheel.core.fold.restart import fold_run_restarted
from tidewheel.core.fold.run import (
    fold_deadline_missed,
    fold_run_cancel_requested,
    fold_run_created,
    fold_run_ended,
    fold_run_reopened,
    fold_run_started,
    fold_run_unwatched,
    fold_run_watched,
)
from tidewheel.core.fold.task import (
    fold_launch_postponed,
    fold_lease_expired,
    fold_report_refused,
    fold_task_cancel_requested,
    fold_task_checkpointed,
    fold_task_deferred,
    fold_task_ended_unrun,
    fold_task_expanded,
    fold_task_failed,
    fold_task_heartbeat,
    fold_task_leased,
    fold_task_queued,
    fold_task_ready,
    fold_task_started,
    fold_task_succeeded,
)
from tidewheel.core.state import Aggregate

A = TypeVar("A", bound=Aggregate)

FOLDS: Mapping[type[e.Event], Callable[[Any, Any], Any]] = {
    e.DagDeployed: fold_dag_deployed,
    e.DagRemoved: fold_dag_removed,
    e.DagPaused: fold_dag_paused,
    e.DagUnpaused: fold_dag_unpaused,
    e.SlotsSkipped: fold_slots_skipped,
    e.BackfillStarted: fold_backfill_started,
    e.BackfillSlotsSkipped: fold_backfill_slots_skipped,
    e.BackfillPaused: fold_backfill_switched,
    e.BackfillResumed: fold_backfill_switched,
    e.BackfillCancelled: fold_backfill_ended,
    e.BackfillFinished: fold_backfill_ended,
    e.RunCreated: fold_run_created,
    e.RunRestarted: fold_run_restarted,
    e.RunStarted: fold_run_started,
    e.RunReopened: fold_run_reopened,
    e.TasksCleared: fold_tasks_cleared,
    e.RunCancelRequested: fold_run_cancel_requested,
    e.DeadlineMissed: fold_deadline_missed,
    e.RunSucceeded: fold_run_ended,
    e.RunFailed: fold_run_ended,
    e.RunCancelled: fold_run_ended,
    e.RunWatched: fold_run_watched,
    e.RunUnwatched: fold_run_unwatched,
    e.TaskReady: fold_task_ready,
    e.TaskExpanded: fold_task_expanded,
    e.TaskDeferred: fold_task_deferred,
    e.LaunchPostponed: fold_launch_postponed,
    e.TaskQueued: fold_task_queued,
    e.TaskLeased: fold_task_leased,
    e.TaskStarted: fold_task_started,
    e.TaskHeartbeat: fold_task_heartbeat,
    e.TaskCheckpointed: fold_task_checkpointed,
    e.TaskSucceeded: fold_task_succeeded,
    e.TaskFailed: fold_task_failed,
    e.LeaseExpired: fold_lease_expired,
    e.TaskSkipped: fold_task_ended_unrun,
    e.TaskUpstreamFailed: fold_task_ended_unrun,
    e.TaskCancelRequested: fold_task_cancel_requested,
    e.TaskCancelled: fold_task_cancelled,
    e.TaskMarked: fold_task_marked,
    e.ReportRefused: fold_report_refused,
    e.PoolConfigured: fold_pool_configured,
    e.WorkerJoined: fold_worker_joined,
    e.WorkerRenewed: fold_worker_renewed,
    e.WorkerSuspended: fold_worker_suspended,
    e.WorkerLeft: fold_worker_left,
    e.TaskEnqueued: fold_task_enqueued,
    e.SlotGranted: fold_slot_granted,
    e.SlotReleased: fold_slot_released,
    e.SlotRefused: fold_slot_refused,
    e.JournalRepaired: fold_journal_repaired,
}


def fold(state: A, event: e.Event) -> A:
    """The state after ``event``.

    Raises ``IllegalTransition``, ``KeyError`` or ``AssertionError`` if it can not follow.
    """
    folded: A = FOLDS[type(event)](state, event)
    return folded
