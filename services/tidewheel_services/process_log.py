"""How the processes write what they do: one line an event on stderr, readable at a terminal, JSON in a pipe."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import TextIO, cast

import structlog


def log_to_stderr(level: int = logging.INFO) -> None:
    """Set up structlog for this process."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Stderr())),
    )


class _Stderr(io.TextIOBase):
    """What stderr is at the moment. A line that nobody can read any more is dropped: no thread ends of it.

    The reader of a pipe may end before us, a terminal be closed, a disk be full.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
