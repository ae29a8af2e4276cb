"""The API over a real broker: answers by mail, positions, and a lag that comes to nothing (C119)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from uuid import uuid4

import httpx
import psycopg
import pytest

from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import Log
from tidewheel.log.opening import open_log
from tidewheel.runtime.scheduler import Scheduler
from tidewheel_projections.projector import Projector
from tidewheel_projections.schema import migrate

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

HELLO = "id: hello\ntasks: [{id: a, pool: nowhere, run: 'true'}]\n"


@pytest.fixture(scope="module")
def kafka(kafka_address: str) -> Iterator[Log]:
    log = open_log(f"kafka://{kafka_address}?prefix=api-{uuid4().hex[:8]}.&partitions=4")
    log.create_topics()
    yield log
    log.close()


def test_writes_reads_and_lag(kafka: Log, database: str, start_api, run_threads, eventually) -> None:
    with psycopg.connect(database) as connection:
        migrate(connection)
    with run_threads() as threads:
        threads.run(Scheduler(kafka, "scheduler", CelEvaluator()).run, "scheduler")
        threads.run(Projector(kafka, database).run, "projector")
        api: httpx.Client = start_api(kafka, database, answer_s=15)
        deployed = api.post("/api/v1/dags", content=HELLO, headers={"Content-Type": "application/yaml"})
        assert deployed.status_code == 201, deployed.text

        took = []
        for number in range(20):
            begun = time.monotonic()
            started = api.post("/api/v1/dags/hello/runs", json={"run_id": f"r{number}"})
            took.append(time.monotonic() - begun)
            assert (started.status_code, started.json()["created"]) == (201, True), started.text
        print(f"start of a run: {statistics.median(took) * 1000:.1f} ms")
        assert api.post("/api/v1/dags/hello/runs", json={"run_id": "r7"}).status_code == 200

        position = started.headers["x-tidewheel-position"]
        assert api.get("/api/v1/dags/hello/runs/r19", params={"position": position}).status_code == 200
        lag = eventually(
            lambda: (
                (found := api.get("/api/v1/lag").json())["projection_lag"] == 0 and found["input_lag"] == 0 and found
            )
        )
        assert all(entry["end_offset"] == entry["projected_offset"] for entry in lag["journals"])
        assert api.get("/ready").status_code == 200
        reasons = api.get("/api/v1/dags/hello/runs/r19/why").json()["reasons"]
        assert [reason["code"] for reason in reasons] == ["max_runs"]
        reasons = api.get("/api/v1/dags/hello/runs/r0/why").json()["reasons"]
        assert [reason["code"] for reason in reasons] == ["no_worker"]
    # Its scheduler has left the group, and nobody decides any more.
    reasons = api.get("/api/v1/dags/hello/runs/r0/why").json()["reasons"]
    assert [reason["code"] for reason in reasons] == ["no_scheduler", "no_worker"]
