"""HTTP tasks against a real server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.http_service import Answer, Request, http_service
from tests.worker.conftest import StartWorker
from tests.worker.engine import Engine
from tidewheel.core.assignment import HttpSpec, Secret
from tidewheel.core.commands import ReportCancelled, ReportStarted


class Service:
    """A path for each behaviour; what was asked is kept in ``asked``."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.started = threading.Event()
        self.hung_up = threading.Event()

    def answer(self, request: Request) -> Answer | None:
        self.asked.append(request)
        match request.path.partition("?")[0]:
            case "/json":
                return Answer(200, b'{"rows": 3}', "application/json")
            case "/echo":
                return Answer(200, request.headers.get("authorization", "").encode(), "text/plain; charset=utf-8")
            case "/latin":
                return Answer(200, "naïve".encode("latin-1"), "text/plain; charset=latin-1")
            case "/odd":
                return Answer(200, b"plain", "text/plain; charset=undefined")
            case "/nested":
                return Answer(200, b"[" * 20_000 + b"]" * 20_000, "application/json")
            case "/moved":
                return Answer(302, headers={"location": "/json"})
            case "/big":
                return Answer(200, b"x" * 1_000_000)
            case "/broken":
                return Answer(200, b"{oops", "application/json")
            case "/slow":
                self.started.set()
                if request.hung_up(10):
                    self.hung_up.set()
                return None
            case _:
                return Answer(404, b"no such thing")


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with http_service(service.answer) as url:
        yield url


@pytest.fixture
def tls_url(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Of a server whose certificate the worker trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with http_service(service.answer, tls) as url:
        yield url


def test_an_answer_in_json_is_the_output(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    output = engine.success(engine.assign(HttpSpec(method="get", url=f"{url}/json")))
    assert isinstance(output, dict)
    assert (output["status"], output["json"]) == (200, {"rows": 3})
    assert output["headers"]["content-type"] == "application/json"


def test_text_and_its_encoding(engine: Engine, process_worker: StartWorker, url: str) -> None:
    process_worker()
    nested = "[" * 20_000 + "]" * 20_000
    for path, text in (("/latin", "naïve"), ("/odd", "plain"), ("/broken", "{oops"), ("/nested", nested)):
        output = engine.success(engine.assign(HttpSpec(method="GET", url=url + path)))
        assert isinstance(output, dict) and output["text"] == text


def test_a_post_carries_json_and_the_idempotency_key(
    engine: Engine, process_worker: StartWorker, service: Service, url: str
) -> None:
    process_worker()
    task = engine.assign(HttpSpec(method="POST", url=f"{url}/json", json={"a": 1}))
    engine.success(task)
    engine.success(
        engine.assign(HttpSpec(method="PUT", url=f"{url}/json", body="ö", headers={"Idempotency-Key": ("mine",)}))
    )
    first, second = service.asked
    assert first.body == b'{"a":1}' and first.headers["content-type"] == "application/json"
    assert first.headers["idempotency-key"] == f"shop/r1/{task}"
    assert second.headers["idempotency-key"] == "mine" and second.body == "ö".encode()


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
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], service: Service, url: str
) -> None:
    environment["TIDEWHEEL_SECRET_KEY"] = "open sesame"
    process_worker()
    action = HttpSpec(method="GET", url=f"{url}/echo", headers={"Authorization": ("Bearer ", Secret("key"))})
    output = engine.success(engine.assign(action))
    assert service.asked[0].headers["authorization"] == "Bearer open sesame"
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
    engine: Engine,
    process_worker: StartWorker,
    service: Service,
    request: pytest.FixtureRequest,
    scheme: str,
    how: str,
) -> None:
    url = request.getfixturevalue(scheme)
    process_worker()
    task = engine.assign(HttpSpec(method="GET", url=f"{url}/slow"), timeout_ms=1_000 if how == "timeout" else None)
    assert service.started.wait(5)
    if how == "cancel":
        engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
        engine.stop(task, cancel=True)
        assert isinstance(engine.ending(task, 2), ReportCancelled)
    else:
        assert engine.failure(task, 2).kind == "timeout"
    assert service.hung_up.wait(2), "the server sees the end of the connection"
