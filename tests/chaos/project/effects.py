"""What the campaign's tasks do: they note in the ledger, a file outside of the engine, that they began and ended."""

from __future__ import annotations

import os
import time

from tidewheel.task import Context


def note(what: str, context: Context) -> None:
    """One line, by one write, so that lines of many processes do not mix."""
    worker, ms = os.environ["CHAOS_WORKER"], time.time_ns() // 1_000_000
    line = f"{what} {context.dag} {context.run_id} {context.task} {context.attempt} {worker} {ms}\n"
    handle = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def work(context: Context, seconds: float = 0.0) -> None:
    """Begin, take ``seconds``, end."""
    note("start", context)
    time.sleep(seconds)
    note("end", context)


def flaky(context: Context) -> None:
    """Fail at the first attempt."""
    note("start", context)
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    note("end", context)
