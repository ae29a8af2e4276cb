"""What an attempt leaves for the task's next one.

Only the attempt that holds the lease may write: what a replaced one has still to say would take its successor back.
"""

from __future__ import annotations

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.attempt import attempt_fields
from tidewheel.core.decide.decision import Decision
from tidewheel.core.decide.task import holder, json_fault, record_refusal
from tidewheel.core.rules import CHECKPOINT_BYTES_MAX
from tidewheel.core.state import Dag


def decide_report_checkpoint(d: Decision[Dag], command: c.ReportCheckpoint) -> None:
    """Keep it, if it is one; the attempt goes on either way."""
    task = holder(d, command)
    if task is None:
        return
    fault = json_fault(command.checkpoint, "checkpoint", CHECKPOINT_BYTES_MAX, "store it and save where it is")
    if fault is not None:
        record_refusal(d, command, fault)
        d.refuse("invalid", fault)
    elif command.checkpoint != task.checkpoint:
        d.record(
            e.TaskCheckpointed(
                **attempt_fields(command),
                at=d.now,
                actor=command.actor,
                worker=command.worker,
                checkpoint=command.checkpoint,
            )
        )
