"""The two ends of the supervisor's connections, in the moments when one end is faster than the other."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidewheel_services.worker.messages import Exited
from tidewheel_services.worker.supervision import Supervisor

END_S_MAX = 30


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


@pytest.mark.parametrize("surplus", [0, 1_000_000], ids=["one send", "many sends"])
def test_a_command_that_ends_before_its_order_was_sent_off_has_ended_and_nothing_else(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surplus: int
) -> None:
    """The worker's thread may be held up anywhere, also just behind the call that started the command."""
    send = socket.send_fds

    def held_up(connection: socket.socket, buffers: Any, descriptors: Any) -> int:
        sent = send(connection, buffers, descriptors)
        if descriptors and buffers[0] != b"+" and sent == len(buffers[0]):
            assert select.select([connection], [], [], END_S_MAX)[0], "the command did not end"
        return sent

    monkeypatch.setattr(socket, "send_fds", held_up)
    with (tmp_path / "out").open("wb") as out:
        env = {f"LONG_{n}": "x" * 100_000 for n in range(surplus // 100_000)}
        process = supervisor.spawn(["/bin/sh", "-c", "exit 3"], env, tmp_path, [out.fileno(), out.fileno()])
    assert select.select([process], [], [], END_S_MAX)[0]
    assert process.word() == Exited(3, False)
    process.close()
