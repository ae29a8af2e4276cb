"""The end of a run, told to the attempt that waits for it."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.rules import OUTPUT_BYTES_MAX
from tidewheel.core.scope import task_name
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import RunEnd

#: What else the output of the task that waits says: the run's DAG and id.
_FRAME_BYTES = 1_000


def tell_parent(
    d: Decision[Dag], run: RunState, end: e.RunSucceeded | e.RunFailed | e.RunCancelled, state: RunEnd
) -> None:
    """Say how the run ends, if a task of another waits for it."""
    if run.parent is None or run.kind != "workflow":
        return
    d.ask(
        c.ReportRunEnd(
            dag=run.parent.dag,
            run_id=run.parent.run_id,
            task=run.parent.task,
            attempt=run.parent.attempt,
            child_dag=d.state.dag,
            child_run_id=run.run_id,
            state=state,
            reason="" if isinstance(end, e.RunSucceeded) else end.reason,
            outputs=_outputs(d.state, run) if isinstance(end, e.RunSucceeded) else None,
        )
    )


def _outputs(state: Dag, run: RunState) -> str | None:
    """The outputs of the leaves by task; None if that is more than one output may be."""
    found: dict[str, Any] = {}
    room = OUTPUT_BYTES_MAX - _FRAME_BYTES
    for leaf in state.definitions[run.version].leaves:
        found[leaf] = task_name(run, leaf)["output"]
        room -= len(leaf) + 4 + len(msgspec.json.encode(found[leaf]))
        if room < 0:
            return None
    return msgspec.json.encode(found).decode()
