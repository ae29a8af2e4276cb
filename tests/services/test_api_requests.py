"""Commands that somebody waits for: whatever becomes of the log and the owners, the asker gets an answer or is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

import pytest

from tidewheel.core.commands import ConfigurePool, PauseDag, Request
from tidewheel.core.mail import Reply
from tidewheel.log.interface import COMMANDS, MAIL, Append, LogUnavailable, Producer, Reader, Record
from tidewheel.log.memory import MemoryLog, MemoryReader
from tidewheel.log.partition import partition_of
from tidewheel.wire import codec
from tidewheel_services.api.requests import LogAway, NoAnswer, Requests, Stopping


class WeakLog(MemoryLog):
    """A memory log whose server can be away for readers and for producers."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.reads_fail = False
        self.sends_fail = False

    def reader(self, starts: Mapping[tuple[str, int], int]) -> Reader:  # type: ignore[override]
        if self.reads_fail:
            raise LogUnavailable("broker 127.0.0.1:9092 is away")
        inner = super().reader(starts)
        log = self

        class Weak:
            def read(self, max_records: int, timeout_s: float):  # type: ignore[no-untyped-def]
                if log.reads_fail:
                    raise LogUnavailable("broker 127.0.0.1:9092 went away")
                return inner.read(max_records, min(timeout_s, 0.05))

            positions = inner.positions
            close = inner.close

        return Weak()

    def producer(self) -> Producer:  # type: ignore[override]
        inner = super().producer()
        log = self

        class Weak:
            send = inner.send
            close = inner.close

            def flush(self, timeout_s: float) -> None:
                if log.sends_fail:
                    raise LogUnavailable("not acknowledged in time")
                inner.flush(timeout_s)

        return Weak()


class Owner:
    """Answers what it is told to, from every partition of ``commands``."""

    def __init__(self, log: MemoryLog, answer: Callable[[Request], list[Reply]]) -> None:
        self._log, self._answer, self._stop = log, answer, threading.Event()
        self.seen: list[tuple[int, Request]] = []
        self._reader = log.reader({(COMMANDS, partition): 0 for partition in range(log.partitions)})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = self._log.producer()
        while not self._stop.is_set():
            try:
                records = self._reader.read(100, 0.05)
            except LogUnavailable:
                time.sleep(0.01)
                continue
            for record in records:
                command = codec.decode(record.value or b"")
                assert isinstance(command, Request)
                self.seen.append((record.partition, command))
                for reply in self._answer(command):
                    producer.send(Append(MAIL, reply.receiver.encode(), codec.encode(reply), partition=reply.partition))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)


def reply_to(command: Request, **more: object) -> Reply:
    return Reply(
        receiver=command.receiver,
        partition=command.reply_partition,
        request_id=command.request_id,
        **{"ok": True, **more},  # type: ignore[arg-type]
    )


@pytest.fixture
def log() -> WeakLog:
    return WeakLog()


def asking(log: WeakLog, asks: Callable[[Requests], object], answer: Callable[[Request], list[Reply]]) -> Owner:
    owner = Owner(log, answer)
    requests = Requests(log, "api-test")
    requests.start()
    try:
        asyncio.run(asks(requests))  # type: ignore[arg-type]
    finally:
        requests.close()
        owner.close()
    return owner


def test_a_request_gets_its_own_answer_among_many(log: WeakLog) -> None:
    async def asks(requests: Requests) -> None:
        replies = await asyncio.gather(*(requests.ask(PauseDag(dag=f"d{n}"), 5) for n in range(200)))
        assert [reply.message for reply in replies] == [f"d{n}" for n in range(200)]

    owner = asking(log, asks, lambda command: [reply_to(command, message=command.dag)])  # type: ignore[attr-defined]
    assert {command.receiver for _, command in owner.seen} == {owner.seen[0][1].receiver}, "one receiver, one partition"
    for partition, command in owner.seen:
        assert partition == partition_of(command.dag.encode(), 4)  # type: ignore[attr-defined]


def test_a_pools_command_goes_to_the_pools_shard(log: WeakLog) -> None:
    async def asks(requests: Requests) -> None:
        await requests.ask(ConfigurePool(pool="warehouse", slots=3), 5)

    owner = asking(log, asks, lambda command: [reply_to(command)])
    assert [partition for partition, _ in owner.seen] == [partition_of(b"warehouse", 4)]


def test_an_answer_that_comes_twice_or_to_another_or_garbled_does_no_harm(log: WeakLog) -> None:
    def answer(command: Request) -> list[Reply]:
        mine = reply_to(command, message="mine")
        other = Reply(
            receiver="another", partition=mine.partition, request_id=mine.request_id, ok=False, message="other"
        )
        log.producer().send(Append(MAIL, command.receiver.encode(), b"\xc3\x01garbage", partition=mine.partition))
        log.producer().send(Append(MAIL, command.receiver.encode(), None, partition=mine.partition))
        return [other, mine, mine]

    async def asks(requests: Requests) -> None:
        for _ in range(3):
            assert (await requests.ask(PauseDag(dag="d"), 5)).message == "mine"

    asking(log, asks, answer)


def test_c112_silence_ends_in_a_timeout_and_the_late_answer_is_dropped(log: WeakLog) -> None:
    """A partition that moves: the command stays on the log; whoever asks again is answered."""
    silent = True

    async def asks(requests: Requests) -> None:
        nonlocal silent
        begun = time.monotonic()
        with pytest.raises(NoAnswer):
            await requests.ask(PauseDag(dag="d"), 0.2)
        assert 0.15 < time.monotonic() - begun < 10
        silent = False
        assert (await requests.ask(PauseDag(dag="d"), 5)).ok

    late: list[Request] = []

    def answer(command: Request) -> list[Reply]:
        late.append(command)
        return [] if silent else [reply_to(one) for one in late]

    assert len(asking(log, asks, answer).seen) == 2


def test_a_log_that_is_away_at_the_start_is_told_and_waited_for(log: WeakLog) -> None:
    log.reads_fail = True

    async def asks(requests: Requests) -> None:
        with pytest.raises(LogAway, match="is away") as told:
            await requests.ask(PauseDag(dag="d"), 0.5)
        assert not told.value.sent, "nothing goes out before the answer could be read"
        assert requests.fault is not None
        assert log.end_offset(COMMANDS, partition_of(b"d", 4)) == 0
        log.reads_fail = False
        assert (await requests.ask(PauseDag(dag="d"), 5)).ok
        assert requests.fault is None

    # The owner reads around the fault: it was there before.
    log.reads_fail = False
    owner = Owner(log, lambda command: [reply_to(command)])
    log.reads_fail = True
    requests = Requests(log, "api-test")
    requests.start()
    try:
        asyncio.run(asks(requests))
    finally:
        requests.close()
        owner.close()


def test_an_answer_given_while_the_mail_could_not_be_read_is_still_read(log: WeakLog) -> None:
    async def asks(requests: Requests) -> None:
        await requests.ask(PauseDag(dag="warm"), 5)
        waiting = asyncio.create_task(requests.ask(PauseDag(dag="d"), 8))
        await asyncio.sleep(0.6)
        assert not waiting.done()
        log.reads_fail = False
        assert (await waiting).ok

    def answer(command: Request) -> list[Reply]:
        # The reader fails just before the second answer is there.
        log.reads_fail = command.dag == "d"  # type: ignore[attr-defined]
        time.sleep(0.1)
        return [reply_to(command)]

    asking(log, asks, answer)


def test_a_send_in_doubt_says_that_it_may_have_happened(log: WeakLog) -> None:
    log.sends_fail = True

    async def asks(requests: Requests) -> None:
        with pytest.raises(LogAway) as told:
            await requests.ask(PauseDag(dag="d"), 1)
        assert told.value.sent

    asking(log, asks, lambda command: [])


def test_who_waits_when_the_process_stops_is_told(log: WeakLog) -> None:
    async def asks(requests: Requests) -> None:
        waiting = asyncio.create_task(requests.ask(PauseDag(dag="d"), 30))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(requests.close)
        with pytest.raises(Stopping):
            await waiting
        with pytest.raises(Stopping):
            await requests.ask(PauseDag(dag="d"), 1)

    asking(log, asks, lambda command: [])


def test_a_fault_nobody_foresaw_is_told_and_the_mail_read_on(log: WeakLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ended of it left the API ready, and every write without an answer."""
    broken = threading.Event()
    read = MemoryReader.read

    def fail(self: MemoryReader, max_records: int, timeout_s: float) -> list[Record]:
        if broken.is_set() and threading.current_thread().name == "mail":
            raise RuntimeError("a fault nobody foresaw")
        return read(self, max_records, timeout_s)

    monkeypatch.setattr(MemoryReader, "read", fail)

    async def asks(requests: Requests) -> None:
        assert (await requests.ask(PauseDag(dag="d"), 5)).ok
        broken.set()
        await asyncio.sleep(0.2)
        with pytest.raises(LogAway, match="a fault nobody foresaw") as told:
            await requests.ask(PauseDag(dag="d"), 0.5)
        assert not told.value.sent
        assert "a fault nobody foresaw" in (requests.fault or "")
        broken.clear()
        assert (await requests.ask(PauseDag(dag="d"), 5)).ok

    asking(log, asks, lambda command: [reply_to(command)])


def test_a_letter_that_breaks_its_reader_holds_up_no_other(log: WeakLog, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = codec.decode

    def fail(data: bytes) -> object:
        if data == b"poison":
            raise RecursionError("a fault nobody foresaw")
        return decode(data)

    monkeypatch.setattr(codec, "decode", fail)

    def answer(command: Request) -> list[Reply]:
        mine = reply_to(command)
        log.producer().send(Append(MAIL, command.receiver.encode(), b"poison", partition=mine.partition))
        return [mine]

    async def asks(requests: Requests) -> None:
        assert (await requests.ask(PauseDag(dag="d"), 5)).ok

    asking(log, asks, answer)
