"""The API as a process: its port, how it starts and ends, what it costs when nobody asks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tidewheel.log.interface import Log
from tidewheel.log.memory import MemoryLog
from tidewheel_services.api.app import create_app
from tidewheel_services.api.main import CannotServe, listen, serve_app
from tidewheel_services.late_log import LateLog

COMMAND = [sys.executable, "-m", "tidewheel_services.cli", "api", "--log", "memory:"]
NO_POSTGRES = ["--postgres", "postgresql://nobody@127.0.0.1:1/nothing"]
SOURCES = os.pathsep.join(str(Path(__file__).parents[2] / root) for root in ("", "services", "projections"))


def start(*arguments: str, token: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SOURCES, "TIDEWHEEL_TOKEN": token, "NO_COLOR": "1"}
    return subprocess.Popen(
        [*COMMAND, *NO_POSTGRES, *arguments], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def cpu_s(process: subprocess.Popen[str]) -> float:
    """Processor time used so far: what a start costs, whoever else is at work on the machine."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def process() -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """A process, its base URL, and the processor time it took until it answered."""
    running = start("--port", "0")
    assert running.stderr is not None
    url = ""
    for line in running.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            url = found.group()
            break
    assert url, "it never said where it listens"
    assert httpx.get(f"{url}/health").status_code == 200
    yield running, url, cpu_s(running)
    running.kill()
    running.wait()


def test_it_starts_in_under_three_seconds(process: tuple[subprocess.Popen[str], str, float]) -> None:
    assert process[2] < 3.0


def test_idle_it_uses_less_than_three_percent_of_a_core(process: tuple[subprocess.Popen[str], str, float]) -> None:
    before = cpu_s(process[0])
    time.sleep(2)
    assert cpu_s(process[0]) - before < 0.06


def test_an_answer_does_not_wait_for_nagle(process: tuple[subprocess.Popen[str], str, float]) -> None:
    """A delayed acknowledgement costs each answer 40 ms, once the connection has warmed up."""
    with httpx.Client(base_url=process[1]) as client:
        took = []
        for _ in range(60):
            begun = time.monotonic()
            client.get("/health")
            took.append(time.monotonic() - begun)
    assert min(took[30:]) < 0.025


def test_it_ends_on_a_signal_cleanly() -> None:
    running = start("--port", "0")
    assert running.stderr is not None
    for line in running.stderr:
        if "http://" in line:
            break
    running.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    assert running.wait(10) == 0
    assert time.monotonic() - begun < 5


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = start("--port", str(port))
        _, told = running.communicate(timeout=60)
        assert running.returncode not in (0, None)
        assert f"port {port} on 127.0.0.1 is in use" in " ".join(told.split())
        assert "--port" in told
        assert "Traceback" not in told


def test_c126_another_address_without_a_token_is_refused() -> None:
    running = start("--port", "0", "--host", "0.0.0.0")
    _, told = running.communicate(timeout=60)
    assert running.returncode not in (0, None)
    assert "TIDEWHEEL_TOKEN" in told
    assert "Traceback" not in told


def test_c126_a_definition_from_another_host_finds_nobody(
    process: tuple[subprocess.Popen[str], str, float],
) -> None:
    """As started without any option: only 127.0.0.1 is listened to, by no other of this machine's addresses, and who
    gets there under another name is refused."""
    port = int(process[1].rpartition(":")[2])
    text = "id: hostile\ntasks: [{id: a, run: id}]\n"
    addresses = {"127.0.0.2", *(found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None))}
    for address in addresses - {"127.0.0.1"}:
        host = f"[{address}]" if ":" in str(address) else address
        with pytest.raises(httpx.ConnectError):
            httpx.post(f"http://{host}:{port}/api/v1/dags", content=text)
    forwarded = httpx.post(f"{process[1]}/api/v1/dags", content=text, headers={"Host": "flows.example.org"})
    assert forwarded.status_code == 421


def test_a_host_that_is_not_ours_is_told() -> None:
    with pytest.raises(CannotServe, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0, token="x")
    with pytest.raises(CannotServe, match="70000"):
        listen("127.0.0.1", 70_000)


@pytest.fixture
def serving() -> Iterator[Callable[[Log], tuple[httpx.Client, threading.Event, threading.Thread]]]:
    """Serves an API that the test stops itself."""
    made: list[tuple[threading.Event, threading.Thread]] = []

    def serve(log: Log) -> tuple[httpx.Client, threading.Event, threading.Thread]:
        listener = listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = create_app(log, "postgresql://nobody@127.0.0.1:1/nothing", answer_s=20)
        stop, ready = threading.Event(), threading.Event()
        thread = threading.Thread(target=serve_app, args=(app, listener, stop, lambda _: ready.set()))
        thread.start()
        made.append((stop, thread))
        assert ready.wait(10)
        return httpx.Client(base_url=url, timeout=30), stop, thread

    yield serve
    for stop, thread in made:
        stop.set()
        thread.join(10)


def test_who_waits_for_an_answer_when_it_stops_is_told_soon(serving) -> None:
    client, stop, thread = serving(MemoryLog())
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(client.post("/api/v1/dags/hello/pause")))
    waiting.start()
    time.sleep(0.5)
    begun = time.monotonic()
    stop.set()
    waiting.join(10)
    thread.join(10)
    assert time.monotonic() - begun < 5
    assert answers[0].status_code == 503
    assert answers[0].headers["content-type"] == "application/problem+json"
    assert "may still be carried out" in answers[0].json()["detail"]


def test_a_log_that_cannot_be_opened_for_a_fault_of_ours_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API stayed, never ready, with nobody left who would have opened the log."""

    def fail(url: str, on_stuck: object = None) -> Log:
        raise RuntimeError("a fault nobody foresaw")

    monkeypatch.setattr("tidewheel_services.waiting_for_log.open_log", fail)
    stop = threading.Event()
    late = LateLog("memory:", stop)
    assert stop.wait(5)
    with pytest.raises(RuntimeError, match="a fault nobody foresaw"):
        late.close()
