"""What belongs to the whole process: a test that changes it and does not put it back fails, instead of a later one."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Of these: pytest-timeout has ALRM to itself.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
#: pytest itself sets this one.
_PHASE = b"PYTEST_CURRENT_TEST"


def _environment() -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = dict(os.environ._data)  # type: ignore[attr-defined]  # decoding takes 50 times as long
    found.pop(_PHASE, None)
    return found


def _set_environment(wanted: dict[bytes, bytes]) -> None:
    for name in set(_environment()) - set(wanted):
        del os.environb[name]
    for name, value in wanted.items():
        os.environb[name] = value


def _set_signals(wanted: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, wanted, strict=True):
        signal.signal(number, handler)


def _set_root_logger(wanted: tuple[int, list[logging.Handler], int]) -> None:
    logging.root.level, logging.root.handlers[:], logging.root.manager.disable = wanted


def _set_path(wanted: list[str]) -> None:
    sys.path[:] = wanted


def _set_hooks(wanted: tuple[Any, ...]) -> None:
    sys.excepthook, threading.excepthook, sys.unraisablehook = wanted


#: What it is, how it is read, and how it is put back.
_STATE: tuple[tuple[str, Callable[[], Any], Callable[[Any], object]], ...] = (
    ("the environment", _environment, _set_environment),
    ("the current directory", os.getcwd, os.chdir),
    ("signal handlers", lambda: [signal.getsignal(number) for number in _SIGNALS], _set_signals),
    (
        "the root logger",
        lambda: (logging.root.level, [*logging.root.handlers], logging.root.manager.disable),
        _set_root_logger,
    ),
    ("sys.path", lambda: [*sys.path], _set_path),
    ("exception hooks", lambda: (sys.excepthook, threading.excepthook, sys.unraisablehook), _set_hooks),
    ("the garbage collector", gc.isenabled, lambda wanted: gc.enable() if wanted else gc.disable()),
    (
        "the limit of open files",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
        lambda wanted: resource.setrlimit(resource.RLIMIT_NOFILE, wanted),
    ),
    ("the time-out of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
)


@contextmanager
def unchanged() -> Iterator[None]:
    """What belongs to the process is as before after the block: what is not is put back, and named in an error."""
    before = [read() for _, read, _ in _STATE]
    yield
    after = [read() for _, read, _ in _STATE]
    if after == before:
        return
    changed = []
    for (what, _, put_back), was, found in zip(_STATE, before, after, strict=True):
        if was != found:
            put_back(was)
            changed.append(f"{what}: {_difference(was, found)}")
    raise AssertionError("left behind for every later test of this process: " + "; ".join(changed))


def _difference(was: Any, found: Any) -> str:
    if isinstance(was, dict):
        # Names only: values may be secrets.
        names = sorted(name for name in was.keys() | found.keys() if was.get(name) != found.get(name))
        return b", ".join(names).decode()
    return f"{was} is now {found}"
