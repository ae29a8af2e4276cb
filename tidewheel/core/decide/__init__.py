"""The decisions: ``decide(state, command, now, rules)`` says what a command comes to. It changes nothing, does no
I/O, reads no clock.

A file per noun, a function per command; this is their register.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidewheel.core import commands as c
from tidewheel.core.decide.asked import decide_launch_run, decide_recall_run
from tidewheel.core.decide.backfill import (
    decide_cancel_backfill,
    decide_pause_backfill,
    decide_resume_backfill,
    decide_start_backfill,
)
from tidewheel.core.decide.checkpoint import decide_report_checkpoint
from tidewheel.core.decide.child import decide_report_launch, decide_report_run_end
from tidewheel.core.decide.clear import decide_clear_tasks
from tidewheel.core.decide.dag import (
    decide_deploy_dag,
    decide_fire_schedule,
    decide_pause_dag,
    decide_remove_dag,
    decide_unpause_dag,
)
from tidewheel.core.decide.decision import Answer, Decision, expects_reply
from tidewheel.core.decide.lease import decide_expire_lease, decide_grant_slot, decide_refuse_slot, resend_leases
from tidewheel.core.decide.operation import decide_mark_task
from tidewheel.core.decide.pool import (
    decide_allocate_slots,
    decide_configure_pool,
    decide_enqueue_task,
    decide_expire_worker,
    decide_join_pool,
    decide_leave_pool,
    decide_release_slot,
    decide_renew_worker,
)
from tidewheel.core.decide.run import decide_cancel_run, decide_fire_deadline, decide_start_run
from tidewheel.core.decide.steps import decide_continue_run
from tidewheel.core.decide.task import (
    decide_expire_queued,
    decide_report_cancelled,
    decide_report_failure,
    decide_report_heartbeat,
    decide_report_started,
    decide_report_success,
    decide_retry_task,
)
from tidewheel.core.decide.wait import decide_approval, decide_report_wait, decide_resume_task
from tidewheel.core.decide.watch import decide_watch_run
from tidewheel.core.rules import Rules
from tidewheel.core.state import Aggregate

__all__ = ["DECISIONS", "Answer", "Decision", "decide", "expects_reply", "resend_leases"]

A = TypeVar("A", bound=Aggregate)

DECISIONS: Mapping[type[c.Command], Callable[[Any, Any], None]] = {
    c.DeployDag: decide_deploy_dag,
    c.RemoveDag: decide_remove_dag,
    c.PauseDag: decide_pause_dag,
    c.UnpauseDag: decide_unpause_dag,
    c.StartRun: decide_start_run,
    c.CancelRun: decide_cancel_run,
    c.MarkTask: decide_mark_task,
    c.ClearTasks: decide_clear_tasks,
    c.DecideApproval: decide_approval,
    c.ReportWait: decide_report_wait,
    c.StartBackfill: decide_start_backfill,
    c.PauseBackfill: decide_pause_backfill,
    c.ResumeBackfill: decide_resume_backfill,
    c.CancelBackfill: decide_cancel_backfill,
    c.WatchRun: decide_watch_run,
    c.LaunchRun: decide_launch_run,
    c.ReportLaunch: decide_report_launch,
    c.ReportRunEnd: decide_report_run_end,
    c.RecallRun: decide_recall_run,
    c.GrantSlot: decide_grant_slot,
    c.RefuseSlot: decide_refuse_slot,
    c.ReportStarted: decide_report_started,
    c.ReportHeartbeat: decide_report_heartbeat,
    c.ReportCheckpoint: decide_report_checkpoint,
    c.ReportSuccess: decide_report_success,
    c.ReportFailure: decide_report_failure,
    c.ReportCancelled: decide_report_cancelled,
    c.FireSchedule: decide_fire_schedule,
    c.FireDeadline: decide_fire_deadline,
    c.ExpireLease: decide_expire_lease,
    c.RetryTask: decide_retry_task,
    c.ExpireQueued: decide_expire_queued,
    c.ResumeTask: decide_resume_task,
    c.ContinueRun: decide_continue_run,
    c.ConfigurePool: decide_configure_pool,
    c.JoinPool: decide_join_pool,
    c.RenewWorker: decide_renew_worker,
    c.LeavePool: decide_leave_pool,
    c.EnqueueTask: decide_enqueue_task,
    c.ReleaseSlot: decide_release_slot,
    c.ExpireWorker: decide_expire_worker,
    c.AllocateSlots: decide_allocate_slots,
}


def decide(state: A, command: c.Command, now: int, rules: Rules) -> Decision[A]:
    """What ``command`` comes to in ``state`` at ``now`` (ms since the epoch)."""
    decision = Decision(state, now, rules)
    DECISIONS[type(command)](decision, command)
    return decision
