"""HTTP tasks against a real server."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import trustme
from conftest import StartWorker
from engine import Engine

from tidewheel.core.assignment import HttpSpec, Secret
from tidewheel.core.commands import ReportCancelled, ReportStarted


class Handler(BaseHTTPRequestHandler):
    """A path for each behaviour; what was asked is kept in ``asked``."""

    asked: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    started = threading.Event()
    hung_up = threading.Event()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        match self.path.partition("?")[0]:
            case "/json":
                self._answer(200, b'{"rows": 3}', "application/json")
            case "/echo":
                self._answer(200, self.headers.get("authorization", "").encode(), "text/plain; charset=utf-8")
            case "/latin":
                self._answer(200, "naïve".encode("latin-1"), "text/plain; charset=latin-1")
            case "/missing":
                self._answer(404, b"no such thing", "text/plain")
            case "/moved":
                self.send_response(302)
                self.send_header("location", "/json")
                self.send_header("content-length", "0")
                self.end_headers()
            case "/big":
                self._answer(200, b"x" * 1_000_000, "text/plain")
            case "/broken":
                self._answer(200, b"{oops", "application/json")
            case "/slow":
                self.started.set()
                self.connection.settimeout(10)
                if self.connection.recv(1) == b"":
                    self.hung_up.set()

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[str]:
    Handler.asked.clear()
    Handler.started.clear()
    Handler.hung_up.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def tls_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Of a server whose certificate the worker trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with serving(tls) as url:
        yield url


def test_an_answer_in_json_is_the_output(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    output = engine.success(engine.assign(HttpSpec(method="get", url=f"{url}/json")))
    assert isinstance(output, dict)
    assert (output["status"], output["json"]) == (200, {"rows": 3})
    assert output["headers"]["content-type"] == "application/json"


def test_text_and_its_encoding(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    for path, text in (("/latin", "naïve"), ("/broken", "{oops")):
        output = engine.success(engine.assign(HttpSpec(method="GET", url=url + path)))
        assert isinstance(output, dict) and output["text"] == text


def test_a_post_carries_json_and_the_idempotency_key(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    task = engine.assign(HttpSpec(method="POST", url=f"{url}/json", json={"a": 1}))
    engine.success(task)
    engine.success(
        engine.assign(HttpSpec(method="PUT", url=f"{url}/json", body="ö", headers={"Idempotency-Key": ("mine",)}))
    )
    (_, _, first, body), (_, _, second, text) = Handler.asked
    assert body == b'{"a":1}' and first["content-type"] == "application/json"
    assert first["idempotency-key"] == f"shop/r1/{task}"
    assert second["idempotency-key"] == "mine" and text == "ö".encode()


def test_redirects_are_followed(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    output = engine.success(engine.assign(HttpSpec(method="GET", url=f"{url}/moved")))
    assert isinstance(output, dict) and output["json"] == {"rows": 3}


def test_an_unexpected_status_fails_and_an_expected_one_does_not(
    engine: Engine, process_worker: StartWorker, url: str
) -> None:
    process_worker()
    failure = engine.failure(engine.assign(HttpSpec(method="GET", url=f"{url}/missing?token=abc")))
    assert (failure.kind, failure.http_status) == ("http_status", 404)
    assert failure.message == f"{url}/missing answered 404, expected 200 to 299: no such thing"
    output = engine.success(engine.assign(HttpSpec(method="GET", url=f"{url}/missing", expect=(404,))))
    assert isinstance(output, dict) and output["status"] == 404


def test_an_answer_that_cannot_travel_is_refused(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    failure = engine.failure(engine.assign(HttpSpec(method="GET", url=f"{url}/big")))
    assert failure.kind == "output"
    assert "1000000 bytes" in failure.message and "65536" in failure.message


def test_no_answer_says_where(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    failure = engine.failure(engine.assign(HttpSpec(method="GET", url=f"http://u:p@127.0.0.1:{port}/x?key=1")))
    assert failure.kind == "http_error"
    assert f"no answer from http://127.0.0.1:{port}/x:" in failure.message and "key=1" not in failure.message
    failure = engine.failure(engine.assign(HttpSpec(method="GET", url="ftp://example.com")))
    assert failure.kind == "setup"


def test_a_secret_header_is_masked_when_it_comes_back(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], url: str
) -> None:
    environment["TIDEWHEEL_SECRET_KEY"] = "open sesame"
    process_worker()
    action = HttpSpec(method="GET", url=f"{url}/echo", headers={"Authorization": ("Bearer ", Secret("key"))})
    output = engine.success(engine.assign(action))
    assert Handler.asked[0][2]["authorization"] == "Bearer open sesame"
    assert isinstance(output, dict) and output["text"] == "Bearer ***"
    assert b"open sesame" not in engine.all_bytes()


def test_no_half_of_a_secret_stays_in_an_excerpt(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], url: str
) -> None:
    environment["TIDEWHEEL_SECRET_KEY"] = "x" * 490 + "0123456789" * 2
    process_worker()
    action = HttpSpec(method="GET", url=f"{url}/echo", headers={"Authorization": (Secret("key"),)}, expect=(204,))
    assert engine.failure(engine.assign(action)).message.endswith("/echo answered 200, expected 204: ***")


@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("scheme", ["url", "tls_url"])
def test_a_request_under_way_is_cut(
    engine: Engine, process_worker: StartWorker, request: pytest.FixtureRequest, scheme: str, how: str
) -> None:
    url = request.getfixturevalue(scheme)
    process_worker()
    task = engine.assign(HttpSpec(method="GET", url=f"{url}/slow"), timeout_ms=1_000 if how == "timeout" else None)
    assert Handler.started.wait(5)
    if how == "cancel":
        engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
        engine.stop(task, cancel=True)
        assert isinstance(engine.ending(task, 2), ReportCancelled)
    else:
        assert engine.failure(task, 2).kind == "timeout"
    assert Handler.hung_up.wait(2), "the server sees the end of the connection"
