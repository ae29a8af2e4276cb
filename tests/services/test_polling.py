"""One look at what a task waits for by HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import httpx
import pytest

from tidewheel.core.assignment import HttpSpec
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.worker.secrets import KnownSecrets
from tidewheel_services.waiter import polling
from tidewheel_services.waiter.polling import BODY_BYTES_MAX, Came, Hopeless, Look, NotYet, Polled, Poller

CLIENT = httpx.Client


def look(monkeypatch: pytest.MonkeyPatch, answer: httpx.Response, until: str | None = None, **more: Any) -> Look:
    """What comes of this answer."""

    def mocked(**_: Any) -> httpx.Client:
        return CLIENT(transport=httpx.MockTransport(lambda request: answer))

    monkeypatch.setattr(polling.httpx, "Client", mocked)
    polled = Polled(HttpSpec(method="GET", url="http://x"), 1_000, until, **more)
    return Poller(KnownSecrets({"t": "hush-hush"}), CelEvaluator()).look(polled)


def test_any_good_status_will_do_unless_it_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(look(monkeypatch, httpx.Response(204)), Came)
    assert look(monkeypatch, httpx.Response(503)) == NotYet("answered 503")
    assert isinstance(look(monkeypatch, httpx.Response(404), "response.status == 404"), Came)


def test_the_condition_sees_the_answer_the_inputs_and_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    until = "response.json.day == inputs.day && response.headers['x-run'] == run.id"
    answer = httpx.Response(200, json={"day": "monday"}, headers={"X-Run": "r"})
    assert isinstance(look(monkeypatch, answer, until, inputs={"day": "monday"}, run={"id": "r"}), Came)
    assert isinstance(look(monkeypatch, answer, until, inputs={"day": "sunday"}, run={"id": "r"}), NotYet)


def test_what_does_not_evaluate_yet_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look(monkeypatch, httpx.Response(200, text="busy"), "response.json.state == 'ready'")
    assert isinstance(found, NotYet) and found.reason.startswith("answered 200; ${{ response.json.state")


def test_large_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    came = look(monkeypatch, httpx.Response(200, text="x" * BODY_BYTES_MAX), "response.text.size() > 9")
    assert came == Came('{"status":200,"headers":{}}')
    assert isinstance(look(monkeypatch, httpx.Response(200, text="x" * (BODY_BYTES_MAX + 1))), NotYet)


def test_an_output_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    came = look(monkeypatch, httpx.Response(200, text="you said hush-hush"))
    assert isinstance(came, Came) and "you said" in came.output and "hush" not in came.output


@pytest.mark.parametrize("url", ["http://", "ftp://x", "x"])
def test_what_can_not_be_asked_is_hopeless(url: str) -> None:
    polled = Polled(HttpSpec(method="GET", url=url), 1_000)
    assert isinstance(Poller(KnownSecrets(), CelEvaluator()).look(polled), Hopeless)


def test_nobody_there_is_not_yet() -> None:
    polled = Polled(HttpSpec(method="GET", url="http://127.0.0.1:1/"), 1_000)
    assert isinstance(Poller(KnownSecrets(), CelEvaluator()).look(polled), NotYet)


@pytest.mark.parametrize("charset", ["undefined", "idna", "hex", "nosuch", "unicode_escape"])
def test_a_charset_that_no_text_is_written_in_is_passed_over(monkeypatch: pytest.MonkeyPatch, charset: str) -> None:
    """Python has codecs of such names, and what they raise ended the waiter."""
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    came = look(monkeypatch, httpx.Response(200, content=b"\\ud800 ready", headers=headers))
    assert isinstance(came, Came) and "ready" in came.output


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
)
def test_a_service_that_answers_a_byte_at_a_time_is_left(monkeypatch: pytest.MonkeyPatch, begins: bytes) -> None:
    """A few of its kind took all threads of the waiter for ever, and nobody else was asked any more."""
    monkeypatch.setattr(polling, "LOOK_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begins)
                for _ in range(200):
                    time.sleep(0.05)
                    connection.sendall(b"x" if begins else b"")

        threading.Thread(target=drip, daemon=True).start()
        polled = Polled(HttpSpec(method="GET", url=f"http://127.0.0.1:{server.getsockname()[1]}/"), 1_000)
        begun = time.monotonic()
        assert Poller(KnownSecrets(), CelEvaluator()).look(polled) == NotYet("no whole answer within 0.5 s")
        assert time.monotonic() - begun < 5


def test_what_is_under_way_ends_when_the_waiter_does() -> None:
    """Else its process lived on for as long as the slowest service answers."""
    poller, found = Poller(KnownSecrets(), CelEvaluator()), list[Look]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        polled = Polled(HttpSpec(method="GET", url=f"http://127.0.0.1:{server.getsockname()[1]}/"), 1_000)
        asking = threading.Thread(target=lambda: found.append(poller.look(polled)))
        asking.start()
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4)
            poller.cut()
            asking.join(10)
    assert [type(one) for one in found] == [NotYet]
