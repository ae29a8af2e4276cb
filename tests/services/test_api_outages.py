"""Postgres or the log away, at the start and later: told as what it is, and over as soon as they are back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import LogUnavailable
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.scheduler import Scheduler
from tidewheel_projections.schema import migrate
from tidewheel_services.embedded_postgres import EmbeddedPostgres

YAML = {"Content-Type": "application/yaml"}
HELLO = "id: hello\ntasks: [{id: a, run: 'true'}]\n"


class FaultyLog(MemoryLog):
    """A memory log that can be away for the API."""

    away = False

    def producer(self):  # type: ignore[no-untyped-def]
        inner = super().producer()
        log = self

        class Faulty:
            close = inner.close

            def send(self, record):  # type: ignore[no-untyped-def]
                log.check()
                inner.send(record)

            def flush(self, timeout_s: float) -> None:
                log.check()
                inner.flush(timeout_s)

        return Faulty()

    def check(self) -> None:
        if self.away:
            raise LogUnavailable("no broker of 127.0.0.1:9092 answers")

    def end_offset(self, topic: str, partition: int) -> int:
        self.check()
        return super().end_offset(topic, partition)


def problem(answer: httpx.Response, status: int, kind: str) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:tidewheel:problem:{kind}"
    if status == 503:
        assert int(answer.headers["retry-after"]) > 0
    return str(answer.json()["detail"])


def test_postgres_away_at_the_start_empty_gone_and_back(start_api, engine, tmp_path: Path, eventually) -> None:
    server = EmbeddedPostgres(tmp_path / "data", throwaway=True)
    dsn = server.start()
    server.stop()
    api = start_api(engine, dsn, answer_s=5)

    assert "Postgres did not answer" in problem(api.get("/api/v1/dags"), 503, "read_model_unavailable")
    assert "read_model" in problem(api.get("/ready"), 503, "read_model_unavailable")
    assert api.get("/health").status_code == 200
    assert api.post("/api/v1/dags", content=HELLO, headers=YAML).status_code == 201, "writes need no read model"
    assert "tidewheel_lag_known 0.0" in api.get("/metrics").text

    server.start()
    try:
        assert "start the projector" in problem(api.get("/api/v1/dags"), 503, "read_model_unavailable")
        with psycopg.connect(dsn, autocommit=True) as connection:
            migrate(connection)
        assert api.get("/api/v1/dags").json() == {"items": [], "next": None}
        assert api.get("/ready").status_code == 200

        server.stop()
        problem(api.get("/api/v1/dags"), 503, "read_model_unavailable")
        server.start()
        # The first request after it: the kept connections are dead, and nobody notices.
        assert api.get("/api/v1/dags").status_code == 200

        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidewheel-api'"
            )
        assert api.get("/api/v1/dags").status_code == 200
    finally:
        server.stop()


@pytest.fixture
def weak() -> Iterator[FaultyLog]:
    log = FaultyLog(partitions=4)
    stop = threading.Event()
    scheduler = threading.Thread(target=Scheduler(log, "scheduler", CelEvaluator()).run, args=(stop,))
    scheduler.start()
    yield log
    stop.set()
    scheduler.join(10)


def test_a_log_away_at_the_start(start_api, weak: FaultyLog, eventually) -> None:
    weak.away = True
    api = start_api(weak, answer_s=1)
    told = problem(api.post("/api/v1/dags", content=HELLO, headers=YAML), 503, "log_unavailable")
    assert "no broker of 127.0.0.1:9092 answers" in told
    assert "Nothing was sent" in told
    assert "log" in problem(api.get("/ready"), 503, "log_unavailable")
    weak.away = False
    eventually(lambda: api.post("/api/v1/dags", content=HELLO, headers=YAML).status_code in (200, 201))


def test_a_log_that_goes_away_and_comes_back(start_api, weak: FaultyLog) -> None:
    api = start_api(weak, answer_s=2)
    assert api.post("/api/v1/dags", content=HELLO, headers=YAML).status_code == 201
    weak.away = True
    answer = api.post("/api/v1/dags/hello/runs", json={"run_id": "r"})
    problem(answer, 503, "log_unavailable")
    assert answer.json()["run_id"] == "r"
    weak.away = False
    assert api.post("/api/v1/dags/hello/runs", json={"run_id": "r"}).status_code == 201
