"""The two ends of the supervisor's connections, in the moments when one end is faster than the other."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidewheel_services.worker.messages import COOKIE, Exited
from tidewheel_services.worker.processes import cookie_of
from tidewheel_services.worker.supervision import Supervisor, output_pipes

END_S_MAX = 30


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


def test_a_process_that_has_just_begun_is_not_taken_for_a_stranger() -> None:
    """``Popen`` returns while the child is still becoming the program, and has no environment to show."""
    for _ in range(100):
        with subprocess.Popen(["/bin/sleep", "100"], env={COOKIE: "of this test"}) as process:
            seen = cookie_of(process.pid)
            process.kill()
        assert seen in ("of this test", None)
        assert cookie_of(process.pid) == ""


def test_a_process_short_of_files_leaks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    pipe = os.pipe

    def one_pipe() -> tuple[int, int]:
        if opened:
            raise OSError(errno.EMFILE, "too many open files")
        opened.extend(pipe())
        return opened[0], opened[1]

    monkeypatch.setattr(os, "pipe", one_pipe)
    with pytest.raises(OSError, match="too many"):
        output_pipes()
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


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
