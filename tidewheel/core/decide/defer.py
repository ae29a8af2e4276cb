"""How an attempt begins that no worker runs."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.decide.decision import Decision
from tidewheel.core.state import Dag


def defer(
    d: Decision[Dag],
    run_id: str,
    name: str,
    waits_for: e.WaitsFor,
    detail: dict[str, Any],
    *,
    resume_at: int | None = None,
    timeout_at: int | None = None,
) -> None:
    """The task's next attempt waits, without a worker."""
    d.record(
        e.TaskDeferred(
            dag=d.state.dag,
            run_id=run_id,
            task=name,
            attempt=d.state.runs[run_id].task(name).attempt + 1,
            at=d.now,
            waits_for=waits_for,
            resume_at=resume_at,
            timeout_at=timeout_at,
            detail=msgspec.json.encode(detail).decode(),
        )
    )
