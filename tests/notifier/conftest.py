"""What the notifier's tests share: receivers, beside the database of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.notifier.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Takes notifications."""
    with receiving() as found:
        yield found


@pytest.fixture
def other() -> Iterator[Receiver]:
    """Another one."""
    with receiving() as found:
        yield found


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], Any], str], None]:
    """``eventually(condition, what)``: waits, generously, until it is so."""

    def wait(condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            time.sleep(0.02)

    return wait
