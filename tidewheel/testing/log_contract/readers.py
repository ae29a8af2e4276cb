"""Contract: readers see committed records from where they are told to start, and know when they are at the end."""

from __future__ import annotations

import threading
import time

import pytest

from tidewheel.log.interface import EVENTS, MAIL, POOL_EVENTS, Append, Log, LogError, LogUnavailable
from tidewheel.testing.log_contract.driver import (
    HOLD_OPEN,
    PATIENCE_S,
    Driver,
    event,
    needs,
    owns_all,
    poll_until,
    read_all,
    read_some,
    read_until_end,
    send,
    texts,
)

#: Upper bound of the median time from a durable send to a waiting reader's return.
WAKE_S_MAX = 0.1


class Readers(Driver):
    """Reads that belong to no group."""

    def test_a_reader_starts_where_it_is_told(self, log: Log) -> None:
        send(log, *(event(str(n)) for n in range(10)))
        fourth = read_all(log, EVENTS)[4].offset
        reader = log.reader({(EVENTS, 0): fourth})
        assert texts(read_until_end(log, reader, EVENTS)) == ["4", "5", "6", "7", "8", "9"]

    def test_an_empty_partition_is_at_its_end(self, log: Log) -> None:
        reader = log.reader({(EVENTS, 0): 0})
        assert reader.read(10, 0.05) == []
        assert reader.positions()[EVENTS, 0] == log.end_offset(EVENTS, 0) == log.start_offset(EVENTS, 0) == 0
        assert log.end_offsets([(EVENTS, 0), (EVENTS, 1)]) == {(EVENTS, 0): 0, (EVENTS, 1): 0}
        assert log.end_offsets([]) == {}

    def test_a_reader_gives_at_most_what_it_is_asked_for(self, log: Log) -> None:
        send(log, *(event(str(n)) for n in range(100)))
        reader = log.reader({(EVENTS, 0): 0})
        assert texts(read_some(reader, 1)) == ["0"]
        assert len(reader.read(7, 1.0)) <= 7

    def test_positions_name_the_next_offset_of_each_partition(self, log: Log) -> None:
        send(log, event("a", 0), event("b", 0), event("c", 1))
        reader = log.reader({(EVENTS, 0): 0, (EVENTS, 1): 0, (POOL_EVENTS, 2): 0})
        read_some(reader, 3)
        assert dict(reader.positions()) == {(EVENTS, 0): 2, (EVENTS, 1): 1, (POOL_EVENTS, 2): 0}

    def test_the_lag_reaches_0_behind_transaction_markers(self, log: Log) -> None:
        """Ten transactions of one record each: the last thing in the log is a marker, not a record (C119)."""
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        for n in range(10):
            owner.commit(batch, [event(str(n))])
        reader = log.reader({(EVENTS, 0): 0})
        assert texts(read_until_end(log, reader, EVENTS)) == [str(n) for n in range(10)]
        assert reader.positions()[EVENTS, 0] == log.end_offset(EVENTS, 0)
        owner.close()

    def test_a_time_out_is_kept(self, log: Log) -> None:
        reader = log.reader({(EVENTS, 0): 0})
        reader.read(1, 0.0)
        begun = time.monotonic()
        assert reader.read(1, 0.3) == []
        assert 0.25 <= time.monotonic() - begun < 1.5

    def test_a_waiting_reader_wakes_at_once(self, log: Log) -> None:
        reader = log.reader({(MAIL, 0): 0, (MAIL, 1): 0})
        producer = log.producer()
        producer.send(event("warm", 0))
        producer.flush(20)
        reader.read(1, 0.5)
        waits = []
        for n in range(7):
            woken: list[float] = []

            def wait(woken: list[float] = woken) -> None:
                read_some(reader, 1)
                woken.append(time.monotonic())

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.03)
            sent = time.monotonic()
            producer.send(Append(MAIL, b"worker", b"x", partition=n % 2))
            thread.join(20)
            waits.append(woken[0] - sent)
        producer.close()
        assert sorted(waits)[3] < WAKE_S_MAX, waits

    def test_a_reader_is_closed_while_another_thread_reads(self, log: Log) -> None:
        reader = log.reader({(EVENTS, 0): 0})
        told: list[LogError] = []
        reading = threading.Event()

        def read_on() -> None:
            try:
                while True:
                    reader.read(10, 0.5)
                    reading.set()
            except LogUnavailable as error:
                told.append(error)

        thread = threading.Thread(target=read_on, daemon=True)
        thread.start()
        assert reading.wait(PATIENCE_S)
        # In a thread, since it once hung.
        closing = threading.Thread(target=reader.close, daemon=True)
        closing.start()
        closing.join(PATIENCE_S)
        thread.join(PATIENCE_S)
        assert (closing.is_alive(), thread.is_alive()) == (False, False)
        assert len(told) == 1

    def test_a_start_beyond_the_end_is_refused(self, log: Log) -> None:
        """A read model that is ahead of its log has been given another log; it must not wait for ever."""
        send(log, event("x"))
        with pytest.raises(LogError, match="events/0 from offset 7: it ends at 1"):
            log.reader({(EVENTS, 0): 7})
        assert log.reader({(EVENTS, 0): 1}).read(1, 0.0) == []

    @needs(HOLD_OPEN)
    def test_the_end_counts_an_open_transaction_and_readers_do_not_see_it(self, log: Log) -> None:
        send(log, event("before"))
        abort = self.hold_open(log, event("open"))
        assert log.end_offset(EVENTS, 0) == 2
        assert log.end_offsets([(EVENTS, 0), (EVENTS, 1)]) == {(EVENTS, 0): 2, (EVENTS, 1): 0}
        reader = log.reader({(EVENTS, 0): 0})
        assert texts(read_some(reader, 1)) == ["before"]
        assert reader.read(10, 0.5) == []
        assert reader.positions()[EVENTS, 0] == 1
        abort()
        assert read_until_end(log, reader, EVENTS) == []
