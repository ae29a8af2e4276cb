"""The proxy of the campaign, before a server that answers each Kafka request with its correlation id."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tidewheel.testing.kafka_frames import Api, Request, commits, end_error, read_request
from tidewheel.testing.tcp_proxy import TcpProxy

PATIENCE_S = 10.0


def request(api: int, correlation: int, body: bytes = b"", version: int = 1, client: str = "s1") -> bytes:
    text = client.encode()
    frame = struct.pack(">hhih", api, version, correlation, len(text)) + text + body
    return struct.pack(">i", len(frame)) + frame


def end(correlation: int, *, commit: bool = True, name: bytes = b"chaos.s1") -> bytes:
    body = struct.pack(">h", len(name)) + name + struct.pack(">qhb", 7, 3, commit)
    return request(Api.END_TXN, correlation, body)


class Server:
    """Answers every request by its correlation id, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake who accepts
        self._listener.close()
        self._thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                found = read_request(stream.read(int.from_bytes(head, "big")))
                self.got.append(found.correlation)
                connection.sendall(struct.pack(">iiih", 10, found.correlation, 0, 47))


class Client:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> int | None:
        """The correlation id of the next answer; None: the connection has ended."""
        try:
            answer = self._socket.recv(14, socket.MSG_WAITALL)
        except ConnectionError:
            return None
        return int.from_bytes(answer[4:8], "big") if len(answer) == 14 else None

    def silent(self) -> bool:
        self._socket.settimeout(0.3)
        try:
            self._socket.recv(1)
        except TimeoutError:
            return True
        return False


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with TcpProxy(kafka=True) as found:
        yield found


def is_end(found: Request) -> bool:
    return found.api == Api.END_TXN


def test_what_a_request_says() -> None:
    found = read_request(end(5, commit=False)[4:])
    assert (found.api, found.correlation, found.client, found.transactional_id) == (Api.END_TXN, 5, "s1", "chaos.s1")
    assert not commits(found)
    assert commits(read_request(end(5)[4:]))
    newer = (
        struct.pack(">hhih", Api.END_TXN, 3, 5, 2)
        + b"s1\x00"
        + b"\x09chaos.s1"
        + struct.pack(">qhb", 7, 3, 1)
        + b"\x00"
    )
    assert read_request(newer).transactional_id == "chaos.s1"
    assert commits(read_request(newer))


def test_one_wanted_request_is_held_and_others_pass(server: Server, proxy: TcpProxy) -> None:
    port = proxy.listen(server.address)
    hold = proxy.hold(is_end)
    first, second = Client(port), Client(port)
    first.send(request(Api.FETCH, 1))
    assert first.receive() == 1
    first.send(end(2))
    held = hold.wait(PATIENCE_S)
    assert held is not None
    second.send(end(3))
    assert second.receive() == 3
    assert server.got == [1, 3]
    hold.release()
    assert first.receive() == 2
    assert end_error(held, hold.answer(PATIENCE_S)) == 47


def test_an_answer_is_held_after_the_server_has_acted(server: Server, proxy: TcpProxy) -> None:
    client = Client(proxy.listen(server.address))
    hold = proxy.hold(is_end, answer=True)
    client.send(end(1))
    assert hold.wait(PATIENCE_S) is not None
    assert server.got == [1]
    assert client.silent()
    hold.release()


def test_a_request_outlives_its_client(server: Server, proxy: TcpProxy) -> None:
    client = Client(proxy.listen(server.address))
    hold = proxy.hold(is_end)
    client.send(end(1))
    held = hold.wait(PATIENCE_S)
    hold.cut_client()
    assert client.receive() is None
    assert not server.got
    hold.release()
    assert held is not None
    assert end_error(held, hold.answer(PATIENCE_S)) == 47
    assert server.got == [1]


def test_a_dropped_request_takes_its_connection_along(server: Server, proxy: TcpProxy) -> None:
    client = Client(proxy.listen(server.address))
    hold = proxy.hold(is_end)
    client.send(end(1))
    assert hold.wait(PATIENCE_S) is not None
    hold.drop()
    assert client.receive() is None
    assert not server.got


def test_connections_are_cut_or_die_silently_by_client(server: Server, proxy: TcpProxy) -> None:
    port = proxy.listen(server.address)
    one, other, silent = Client(port), Client(port), Client(port)
    for client, name in ((one, "s1"), (other, "s2"), (silent, "w1")):
        client.send(request(Api.FETCH, 1, client=name))
        assert client.receive() == 1
    assert (proxy.cut("s1"), proxy.half_open("w1")) == (1, 1)
    assert one.receive() is None
    silent.send(request(Api.FETCH, 2, client="w1"))
    assert silent.silent()
    other.send(request(Api.FETCH, 3, client="s2"))
    assert other.receive() == 3
    assert server.got == [1, 1, 1, 3]


def test_nothing_is_lost_in_a_frozen_network(server: Server, proxy: TcpProxy) -> None:
    client = Client(proxy.listen(server.address))
    proxy.freeze()
    client.send(request(Api.FETCH, 1))
    assert client.silent()
    proxy.thaw()
    client._socket.settimeout(PATIENCE_S)
    assert client.receive() == 1


def test_a_port_that_leads_nowhere_refuses(proxy: TcpProxy) -> None:
    client = Client(proxy.listen())
    client.send(request(Api.FETCH, 1))
    assert client.receive() is None
