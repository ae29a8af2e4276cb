"""A TCP proxy that tests put between the engine and a server, to do what networks do.

It cuts connections, stalls or delays what passes, lets them die unnoticed (half-open), and holds back one request or
one answer of a wanted kind, so that a test can act at exactly that point. For Kafka it reads requests and answers one
by one; for anything else (Postgres) a piece of the stream counts as a request.

It runs an event loop in a thread of its own; every public method may be called from any other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

from tidewheel.testing.kafka_frames import FRAME_BYTES_MAX, Request, correlation_of, read_request

#: A server's address: a host and port, or the path of a unix socket.
Address = tuple[str, int] | Path
Wanted = Callable[[Request], bool]
T = TypeVar("T")

_CHUNK = 65_536
_PATIENCE_S = 10.0
#: How long a server may take to answer what was released after its client had gone.
_LAST_ANSWER_S = 3.0


class Hold:
    """Holds the first request that is wanted, or the answer to it, until told what becomes of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wanted: Wanted, answer: bool) -> None:
        self._loop = loop
        self.wanted = wanted
        self.of_answer = answer
        self._caught = threading.Event()
        self._answered = threading.Event()
        self._go = asyncio.Event()
        self._drop = False
        self._connection: _Connection | None = None
        self._request: Request | None = None
        self._answer = b""

    def wait(self, timeout_s: float) -> Request | None:
        """What is held now; None if nothing came in time."""
        self._caught.wait(timeout_s)
        return self._request

    @property
    def holds(self) -> Request | None:
        """What is held, or was."""
        return self._request

    def release(self) -> None:
        """Let it go on, or hold nothing more."""
        self._loop.call_soon_threadsafe(self._go.set)

    def drop(self) -> None:
        """Lose it, with its connection."""
        self._drop = True
        self.release()

    def cut_client(self) -> None:
        """Tell the client that its connection broke; the request is kept, and the server knows nothing."""
        if self._connection is not None:
            self._loop.call_soon_threadsafe(self._connection.abandon_client)

    def answer(self, timeout_s: float) -> bytes:
        """The server's answer to what was held and released; nothing if none came in time."""
        self._answered.wait(timeout_s)
        return self._answer

    def catch(self, connection: _Connection, request: Request) -> None:
        """Called by the connection that carries it."""
        self._connection, self._request = connection, request
        self._caught.set()

    async def decided(self) -> bool:
        """Until released; whether it goes on."""
        await self._go.wait()
        return not self._drop

    def saw_answer(self, frame: bytes) -> None:
        """Called by the connection that carries it."""
        self._answer = frame
        self._answered.set()


class TcpProxy:
    """Listens on ports of the loopback, one for each server; ``kafka`` says what is spoken. Use it as a context."""

    def __init__(self, *, kafka: bool) -> None:
        self.kafka = kafka
        #: Where each port leads.
        self.servers: dict[int, Address] = {}
        self.holds: list[Hold] = []
        self.delay_s = 0.0
        self.flowing = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self._listeners: list[asyncio.Server] = []

    def start(self) -> TcpProxy:
        """Begin; nothing is listened on yet."""
        self._thread.start()
        self.thaw()
        return self

    def listen(self, server: Address | None = None) -> int:
        """Listen on a port, which is given. Where it leads may be said later, in ``servers``."""
        port = self._do(self._listen())
        if server is not None:
            self.servers[port] = server
        return port

    def stop(self) -> None:
        """Close everything."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def __enter__(self) -> TcpProxy:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def hold(self, wanted: Wanted, *, answer: bool = False) -> Hold:
        """Hold the next request that is ``wanted``, or the answer to it. One request is held, others pass."""

        async def add() -> Hold:
            hold = Hold(self._loop, wanted, answer)
            self.holds.append(hold)
            return hold

        return self._do(add())

    def forget(self, hold: Hold) -> None:
        """Hold nothing more by it; what it holds goes on."""

        async def remove() -> None:
            if hold in self.holds:
                self.holds.remove(hold)
            hold.release()

        self._do(remove())

    def cut(self, client: str = "") -> int:
        """Break every connection of clients whose id holds ``client``; gives how many."""
        return self._each(client, lambda connection: connection.cut())

    def half_open(self, client: str = "") -> int:
        """Let those connections die without telling anybody: whatever is sent on them is lost. New ones work."""
        return self._each(client, lambda connection: connection.mute())

    def freeze(self) -> None:
        """Let nothing pass, and lose nothing."""
        self._loop.call_soon_threadsafe(self.flowing.clear)

    def thaw(self) -> None:
        """Let it pass again."""
        self._loop.call_soon_threadsafe(self.flowing.set)

    def _each(self, client: str, act: Callable[[_Connection], None]) -> int:
        async def act_on_all() -> int:
            found = [connection for connection in self._connections if client in connection.client]
            for connection in found:
                act(connection)
            return len(found)

        return self._do(act_on_all())

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _listen(self) -> int:
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._listeners.append(listener)
        port: int = listener.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server = self.servers.get(writer.get_extra_info("sockname")[1])
        try:
            if server is None:
                raise ConnectionRefusedError
            if isinstance(server, Path):
                opened = await asyncio.open_unix_connection(str(server))
            else:
                opened = await asyncio.open_connection(*server)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, (reader, writer), opened)
        self._connections.add(connection)
        try:
            await connection.run()
        except asyncio.CancelledError:
            connection.cut()
        finally:
            self._connections.discard(connection)


class _Connection:
    """One client's connection and ours to the server, and what is under way between them."""

    def __init__(
        self,
        proxy: TcpProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._unanswered: deque[tuple[Request, Hold | None]] = deque()
        self._mute = False
        self._answer_seen = asyncio.Event()
        #: The id the client gives itself, once it has.
        self.client = ""

    async def run(self) -> None:
        """Until either side ends it."""
        answers = asyncio.create_task(self._pass_answers())
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, OSError):
                await self._pass_requests()
            await self._wait_for_held_answers()
        finally:
            self._to_server.transport.abort()
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            self._to_client.transport.abort()

    def cut(self) -> None:
        """Break it on both sides."""
        self._to_client.transport.abort()
        self._to_server.transport.abort()

    def abandon_client(self) -> None:
        """Break it on the client's side only."""
        self._to_client.transport.abort()

    def mute(self) -> None:
        """Let it lose all that is sent from now on."""
        self._mute = True

    async def _pass_requests(self) -> None:
        while True:
            data, request = await self._next_request()
            self.client = request.client or self.client
            await self._wait_to_pass()
            hold = self._holding(request)
            if hold is not None and not hold.of_answer and not await hold.decided():
                return
            if self._mute:
                continue
            if self._proxy.kafka:
                self._unanswered.append((request, hold))
            self._to_server.write(data)
            await self._to_server.drain()

    async def _pass_answers(self) -> None:
        try:
            while True:
                data = await self._next_answer()
                await self._wait_to_pass()
                request, hold = self._answered(data)
                if request is not None and hold is not None:
                    hold.saw_answer(data[4:])
                    self._answer_seen.set()
                    if hold.of_answer:
                        hold.catch(self, request)
                        if not await hold.decided():
                            break
                if self._mute or self._to_client.transport.is_closing():
                    continue
                with contextlib.suppress(ConnectionError):
                    self._to_client.write(data)
                    await self._to_client.drain()
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        # The server is gone: so is the client's connection, and with it the reading of requests.
        self._to_client.transport.abort()

    async def _next_request(self) -> tuple[bytes, Request]:
        if self._proxy.kafka:
            data = await _frame(self._from_client)
            return data, read_request(data[4:])
        data = await self._from_client.read(_CHUNK)
        if not data:
            raise ConnectionResetError
        return data, Request(-1, 0, 0, "", "", data)

    async def _next_answer(self) -> bytes:
        if self._proxy.kafka:
            return await _frame(self._from_server)
        data = await self._from_server.read(_CHUNK)
        if not data:
            raise ConnectionResetError
        return data

    async def _wait_to_pass(self) -> None:
        await self._proxy.flowing.wait()
        if self._proxy.delay_s:
            await asyncio.sleep(self._proxy.delay_s)

    def _holding(self, request: Request) -> Hold | None:
        for hold in self._proxy.holds:
            if hold.wanted(request):
                self._proxy.holds.remove(hold)
                if not hold.of_answer:
                    hold.catch(self, request)
                return hold
        return None

    async def _wait_for_held_answers(self) -> None:
        """The client has gone, but what a test held and released is to be answered all the same."""
        deadline = asyncio.get_running_loop().time() + _LAST_ANSWER_S
        while any(hold is not None for _, hold in self._unanswered):
            self._answer_seen.clear()
            left = deadline - asyncio.get_running_loop().time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._answer_seen.wait(), left)
            if left <= 0:
                return

    def _answered(self, data: bytes) -> tuple[Request | None, Hold | None]:
        """The request that this answers, and the hold on it."""
        if not self._proxy.kafka:
            return None, None
        correlation = correlation_of(data[4:])
        while self._unanswered:
            request, hold = self._unanswered.popleft()
            if request.correlation == correlation:
                return request, hold
        return None, None


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A Kafka message with its length in front."""
    head = await reader.readexactly(4)
    length = int.from_bytes(head, "big")
    if not 0 < length <= FRAME_BYTES_MAX:
        raise ConnectionResetError(f"a frame of {length} bytes is no Kafka")
    return head + await reader.readexactly(length)
