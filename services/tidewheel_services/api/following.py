"""Following an attempt's log: a stream of chunks until the attempt has ended and its output is complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
from starlette.concurrency import run_in_threadpool

from tidewheel.core.transitions import TASK_ENDED
from tidewheel_projections import reads, views
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.services import Services
from tidewheel_services.api.unknown import known_task, missing

#: Between two looks: soon after something came, then rarer, so that a thousand quiet followers cost little.
LOOK_S = (0.1, 1.0)
#: Proxies close connections on which nothing is said.
KEEPALIVE_S = 15.0
#: Output and state come by different topics: what was written just before the end may be projected just after it.
TAIL_S = 1.0
BATCH = 500


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where an attempt's output is read."""

    api: Services
    dag: str
    run_id: str
    task: str
    attempt: int

    def chunks(self, after: int, limit: int = BATCH) -> list[views.LogRow]:
        """Chunks behind ``after``."""
        return self.api.reads.read(
            lambda connection: reads.list_logs(
                connection, self.dag, self.run_id, self.task, self.attempt, after_chunk=after, limit=limit
            )
        )

    def state(self) -> str:
        """The attempt's state. Raises ``Problem`` if there is no such attempt."""
        return self.api.reads.read(self._state)

    def ended(self) -> bool:
        """Whether the attempt is over."""
        return self.state() in TASK_ENDED

    def _state(self, connection: reads.Connection) -> str:
        after: str | None = None
        while True:
            page = reads.list_attempts(connection, self.dag, self.run_id, self.task, after=after)
            for row in page.items:
                if row.attempt == self.attempt:
                    return row.state
            if page.next is None:
                break
            after = page.next
        found = known_task(connection, self.dag, self.run_id, self.task)
        raise missing(f"task '{self.task}' has no attempt {self.attempt}; its last one is {found.attempt}")


class Ended(msgspec.Struct, frozen=True):
    """The stream's last word. ``state``: of the attempt; empty if this process is stopping."""

    state: str


Followed = list[views.LogRow] | Ended | None


async def follow(source: LogSource, after: int) -> AsyncIterator[Followed]:
    """Batches of chunks as they come, None after a long silence, ``Ended`` at the end."""
    pause = LOOK_S[0]
    said = time.monotonic()
    over: tuple[float, str] | None = None
    while not source.api.stopping.is_set():
        try:
            items = await run_in_threadpool(source.chunks, after)
            if items:
                after, pause, said = items[-1].chunk, LOOK_S[0], time.monotonic()
                yield items
                if len(items) == BATCH:
                    continue
            elif over is not None and time.monotonic() > over[0]:
                yield Ended(over[1])
                return
            if over is None:
                state = await run_in_threadpool(source.state)
                if state in TASK_ENDED:
                    over = (time.monotonic() + TAIL_S, state)
        except Problem:
            # The database is away for a moment: the stream waits, its client need not know.
            pause = LOOK_S[1]
        if time.monotonic() - said > KEEPALIVE_S:
            said = time.monotonic()
            yield None
        if await _stopped(source.api.stopping, pause):
            break
        pause = min(pause * 1.3, LOOK_S[0] if over is not None else LOOK_S[1])
    yield Ended("")


async def _stopped(stopping: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(stopping.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


async def as_events(followed: AsyncIterator[Followed]) -> AsyncIterator[bytes]:
    """As server-sent events."""
    async for step in followed:
        match step:
            case None:
                yield b": still there\n\n"
            case Ended(state):
                yield b'event: end\ndata: {"state":' + msgspec.json.encode(state) + b"}\n\n"
            case _:
                # JSON holds no raw line break, so each chunk is one data line.
                yield b"".join(
                    b"id: %d\nevent: log\ndata: %b\n\n" % (row.chunk, msgspec.json.encode(row)) for row in step
                )


async def as_text(followed: AsyncIterator[Followed]) -> AsyncIterator[bytes]:
    """As the bare text."""
    async for step in followed:
        if isinstance(step, list):
            yield "".join(row.text for row in step).encode("utf-8", "replace")
