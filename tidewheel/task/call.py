"""Call a user's function: whatever it does, an outcome comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tidewheel.task.context import Context, active
from tidewheel.task.outcome import Failed, Outcome, outcome_of, outcome_of_exception

#: A user's function: any parameters, a JSON value or an awaitable of one.
Function = Callable[..., Any]


def takes_context(function: Function) -> bool:
    """Whether ``function`` declares a parameter named ``context``."""
    try:
        return "context" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def call(function: Function, kwargs: Mapping[str, Any], context: Context, with_context: bool) -> Outcome:
    """Call ``function`` and say how it ended, whatever it raises."""
    token = active.set(context)
    try:
        value = function(**kwargs, context=context) if with_context else function(**kwargs)
        if inspect.iscoroutine(value):
            # Here, not above: it would double the time a fresh runner takes to start.
            import asyncio

            value = asyncio.run(value)
        return outcome_of(value)
    except SystemExit as exit_request:
        return exit_outcome(exit_request)
    except BaseException as error:
        trace = error.__traceback__
        # The first frame is this one.
        return outcome_of_exception(error, trace.tb_next if trace is not None and trace.tb_next is not None else trace)
    finally:
        active.reset(token)


def exit_outcome(request: SystemExit) -> Outcome:
    """The outcome of ``sys.exit``: as a process would end."""
    if request.code is None or request.code == 0:
        return outcome_of(None)
    if isinstance(request.code, int):
        return Failed("exit_code", f"the function called sys.exit({request.code})", request.code)
    return Failed("exit_code", f"the function called sys.exit: {request.code}", 1)
