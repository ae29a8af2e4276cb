"""Reading what processes write, when they write faster than can be read."""

from __future__ import annotations

import os
import socket

import pytest

from tidewheel.wire.messages import LogChunk
from tidewheel.worker.masking import Masker
from tidewheel.worker.tasklog import TaskLog
from tidewheel_services.worker.pump import Pump
from tidewheel_services.worker.supervision import Process


class Sink:
    def __init__(self) -> None:
        self.text = ""

    def put_chunk(self, chunk: LogChunk) -> bool:
        self.text += chunk.text
        return True


@pytest.mark.timeout(30)
def test_a_writer_that_never_stops_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    ours, theirs = socket.socketpair()
    read = os.read

    def read_while_others_write(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        os.write(write_end, b"more\n")
        return data

    sink = Sink()
    log = TaskLog(sink, Masker(), ("d", "r", "t", 1))
    pump = Pump({read_end: "stdout"}, Process(ours, "cookie"))
    os.write(write_end, b"first\n")
    monkeypatch.setattr(os, "read", read_while_others_write)
    pump.drain(log)
    monkeypatch.undo()
    log.close()
    assert sink.text.startswith("first\nmore\n")
    for end in (ours, theirs):
        end.close()
    for descriptor in (read_end, write_end):
        os.close(descriptor)
