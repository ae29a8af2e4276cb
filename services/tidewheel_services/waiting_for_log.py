"""A process may start before its log: it waits, says so, and goes on when the log is there."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tidewheel.log.interface import Log, LogUnavailable
from tidewheel.log.opening import open_log

#: Between tries, growing from the first to the second.
RETRY_S = (0.5, 2.0)

_log = structlog.get_logger("tidewheel")


def open_when_there(
    url: str,
    stop: threading.Event,
    on_stuck: Callable[[str, float], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Log | None:
    """The log at ``url`` once it answers, its topics checked; None if told to stop first.

    ``on_wait`` is told at each try why it is waited for. Raises ``LogMisconfigured`` if the address makes no sense or a
    topic is missing or set wrongly.
    """
    pause = RETRY_S[0]
    while not stop.is_set():
        try:
            return _opened(url, on_stuck)
        except LogUnavailable as error:
            _log.warning("waiting for the log", why=str(error), again_in_s=pause)
            if on_wait is not None:
                on_wait(str(error))
            stop.wait(pause)
            pause = min(pause * 2, RETRY_S[1])
    return None


def with_log(
    url: str,
    stop: threading.Event,
    work: Callable[[Log], object],
    on_stuck: Callable[[str, float], None] | None = None,
) -> None:
    """Do ``work`` over the log at ``url`` once it answers, and close it; nothing if told to stop first. Raises as
    ``open_when_there`` does."""
    log = open_when_there(url, stop, on_stuck)
    if log is None:
        return
    try:
        work(log)
    finally:
        log.close()


def keep_on(body: Callable[[], None], stop: threading.Event) -> None:
    """Run ``body`` until it returns; where it cannot begin because the log is away, begin again."""
    pause = RETRY_S[0]
    while not stop.is_set():
        try:
            body()
        except LogUnavailable as error:
            _log.warning("the log is not available; trying again", why=str(error), again_in_s=pause)
            stop.wait(pause)
            pause = min(pause * 2, RETRY_S[1])
        else:
            return


def _opened(url: str, on_stuck: Callable[[str, float], None] | None) -> Log:
    log = open_log(url, on_stuck)
    try:
        log.check_topics()
    except BaseException:
        log.close()
        raise
    return log
