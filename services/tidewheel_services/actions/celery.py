"""The ``celery`` action: hand a task to an existing Celery application and wait for its result."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from celery.backends.base import DisabledBackend
from celery.result import AsyncResult

from tidewheel.task.context import Context

#: How often the result is asked for: at first, and at most.
ASK_S, ASK_S_MAX = 0.05, 2.0


class CeleryTaskFailed(Exception):
    """The Celery task ended without success; the message has its own traceback."""


def hand_over(
    context: Context,
    app: str,
    task: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
) -> Any:
    """Send ``task`` to the application at ``app`` (``module:name``) and return its result, which must be JSON.

    Its Celery id is made of dag, run, task and attempt. An earlier attempt's is revoked first, for its worker may have
    died while Celery went on; so is this one's when it is stopped. Raises ``CeleryTaskFailed``.
    """
    application = load(app)
    for earlier in range(1, context.attempt):
        application.control.revoke(celery_id(context, earlier), terminate=True)
    handed = application.send_task(
        task, args=list(args), kwargs=dict(kwargs or {}), task_id=celery_id(context, context.attempt), queue=queue
    )
    try:
        return wait(context, handed)
    except BaseException:
        # Also a stop, which comes as ``SystemExit``.
        handed.revoke(terminate=True)
        raise
    finally:
        handed.forget()


def celery_id(context: Context, attempt: int) -> str:
    """What Celery calls the task of an attempt: a UUID, as its backends expect, and the same wherever it is asked."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tidewheel:{context.idempotency_key}/{attempt}"))


def load(app: str) -> Celery:
    """The application ``module:name``. Raises ``CeleryTaskFailed`` if it could never tell a result."""
    module, _, name = app.partition(":")
    application = getattr(importlib.import_module(module), name)
    if not isinstance(application, Celery):
        raise CeleryTaskFailed(f"'{app}' is no Celery application, it is a {type(application).__name__}")
    if isinstance(application.backend, DisabledBackend):
        raise CeleryTaskFailed(f"'{app}' has no result backend, so nobody could know how its task ended: set one")
    return application


def wait(context: Context, handed: AsyncResult) -> Any:
    """Wait for the end; the state that Celery shows is the attempt's progress."""
    pause_s, shown = ASK_S, ""
    while not handed.ready():
        if handed.state != shown:
            shown = handed.state
            context.heartbeat({"celery": shown})
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, ASK_S_MAX)
    if handed.successful():
        return handed.result
    raise CeleryTaskFailed(f"{handed.state}: {handed.result!r}\n{handed.traceback or ''}".rstrip())
