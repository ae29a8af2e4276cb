"""A test that changes the process for those after it fails, and only that one does."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process_state import unchanged


def directory() -> None:
    os.chdir("/")


def handler() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)


CHANGES: dict[str, Callable[[], object]] = {
    "the environment: LEFT_BEHIND": lambda: os.environ.update(LEFT_BEHIND="secret"),
    "the environment: PATH": lambda: os.environ.pop("PATH"),
    "the current directory: ": directory,
    "signal handlers: ": handler,
    "the root logger: ": lambda: logging.root.addHandler(logging.NullHandler()),
    "sys.path: ": lambda: sys.path.insert(0, "/nowhere"),
    "exception hooks: ": lambda: setattr(sys, "excepthook", print),
    "the garbage collector: ": gc.disable,
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_left_behind_is_named_and_put_back(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with unchanged():
        with pytest.raises(AssertionError, match=f"left behind .*: {what}") as told, unchanged():
            CHANGES[what]()
        assert "secret" not in str(told.value)


def test_what_is_put_back_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with unchanged(), monkeypatch.context() as patch:
        patch.setenv("LEFT_BEHIND", "not at all")
        patch.chdir("/")
