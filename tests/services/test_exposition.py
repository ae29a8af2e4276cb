"""The port on which a scheduler, worker or projector says how it is."""

from __future__ import annotations

import socketserver
from collections.abc import Iterable, Iterator

import httpx
import pytest

from tidewheel_services import exposition as exposition_module
from tidewheel_services.exposition import CannotExpose, Exposition
from tidewheel_services.figures import Figure, figure


class Told:
    """A source that says what it is told to."""

    def __init__(self, why: str = "") -> None:
        self.why = why

    def figures(self) -> Iterable[Figure]:
        yield figure("turns", "Turns", 3, "counter")
        yield Figure("slots", "Slots", [({"pool": "a"}, 1), ({"pool": "b"}, 2)])

    def fault(self) -> str:
        return self.why


@pytest.fixture
def exposition() -> Iterator[Exposition]:
    with Exposition("127.0.0.1", 0) as found:
        yield found


def test_before_there_is_anything_to_show_it_lives_and_is_not_ready(exposition: Exposition) -> None:
    assert httpx.get(f"{exposition.url}/healthz").json() == {"status": "ok"}
    answer = httpx.get(f"{exposition.url}/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "the log has not been reached" in answer.json()["why"]
    assert "tidewheel_ready 0.0" in httpx.get(f"{exposition.url}/metrics").text


def test_figures_are_read_at_each_scrape(exposition: Exposition) -> None:
    source = Told()
    exposition.show(source)
    answer = httpx.get(f"{exposition.url}/metrics?name=any")
    assert answer.headers["content-type"].startswith("text/plain")
    shown = answer.text.splitlines()
    for line in (
        "# TYPE tidewheel_turns_total counter",
        "tidewheel_turns_total 3.0",
        'tidewheel_slots{pool="a"} 1.0',
        'tidewheel_slots{pool="b"} 2.0',
        "tidewheel_ready 1.0",
    ):
        assert line in shown
    assert any(line.startswith("process_resident_memory_bytes ") for line in shown)
    assert httpx.get(f"{exposition.url}/ready").json() == {"status": "ready"}
    source.why = "no turn for 40 s"
    assert httpx.get(f"{exposition.url}/ready").json() == {"status": "not ready", "why": "no turn for 40 s"}
    assert "tidewheel_ready 0.0" in httpx.get(f"{exposition.url}/metrics").text


def test_other_addresses_are_told_what_there_is(exposition: Exposition) -> None:
    answer = httpx.get(f"{exposition.url}/")
    assert (answer.status_code, "/metrics" in answer.text) == (404, True)


def test_a_port_in_use_is_told(exposition: Exposition) -> None:
    port = int(exposition.url.rsplit(":", 1)[1])
    with pytest.raises(CannotExpose, match=f"port {port} on 127.0.0.1 is in use already; .*--metrics-port"):
        Exposition("127.0.0.1", port)


def test_it_serves_on_after_a_fault_that_nobody_foresaw(
    exposition: Exposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread ended of it, and whoever asked how the process is waited in vain."""
    accept = socketserver.TCPServer.get_request
    faults = [MemoryError()]

    def fail(self: socketserver.TCPServer) -> object:
        if faults:
            raise faults.pop()
        return accept(self)

    monkeypatch.setattr(exposition_module, "_AGAIN_S", 0.05)
    monkeypatch.setattr(socketserver.TCPServer, "get_request", fail)
    assert httpx.get(f"{exposition.url}/health", timeout=5).json() == {"status": "ok"}
    assert not faults
