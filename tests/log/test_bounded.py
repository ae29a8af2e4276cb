"""What drivers keep in memory has bounds in bytes, not only in records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.log.interface import EVENTS, Append, LogUnavailable
from tidewheel.log.sqlite import SqliteLog, hub
from tidewheel.testing.log_contract.driver import event, poll_records, read_all, send, trigger

MIB = 2**20


def test_large_records_are_read_a_few_at_a_time_and_none_is_passed_over(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", 1)
    log.create_topics()
    send(log, *(event("x" * MIB) for _ in range(20)), *(trigger("y" * MIB) for _ in range(20)))
    reader = log.reader({(EVENTS, 0): 0})
    assert len(reader.read(5_000, 1)) == 8
    assert [record.offset for record in read_all(log, EVENTS)] == list(range(20))
    owner = log.owner("a")
    assert len(owner.poll(5_000, 1).records) <= 8
    owner.reset()
    records, _ = poll_records(owner, 20)
    assert [record.offset for record in records] == list(range(20))
    log.close()


def test_who_sends_more_than_can_be_written_waits_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_QUEUE_WAIT_S_MAX", 0.2)
    log = SqliteLog(tmp_path / "log.db", 1)
    log.create_topics()
    producer = log.producer()
    sent = 0
    with log._share()._writer_lock, pytest.raises(LogUnavailable, match="records wait to be written"):
        while sent < 500:
            producer.send(Append(EVENTS, b"etl", bytes(MIB), partition=0))
            sent += 1
    # One batch may be under way beside what is queued.
    assert sent <= 2 * 64 + 2
    producer.flush(30)
    assert log.end_offset(EVENTS, 0) == sent
    log.close()
