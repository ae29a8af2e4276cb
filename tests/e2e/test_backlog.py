"""A backlog costs time, not memory: what the scheduler and the projector need is the same for five times as much.

The same with a million is `python -m benchmarks.backlog`.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from benchmarks.backlog import flood_of_events, flood_of_triggers
from tidewheel.log.opening import open_log
from tidewheel_services.embedded_postgres import EmbeddedPostgres

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

#: Large records, so that few show what many would do. Kept, what is more of them would be 36 and 70 MiB at least; seen
#: were 1 and 18, for a full batch of the projector is larger than the smaller history.
TRIGGERS, INPUT_BYTES, TRIGGERS_GROWTH_MB_MAX = (10_000, 40_000), 1_200, 20
EVENTS, OUTPUT_BYTES, EVENTS_GROWTH_MB_MAX = (6_000, 24_000), 16_000, 45


def test_triggers_that_wait_do_not_fill_the_scheduler(kafka_address: str, tmp_path: Path) -> None:
    peaks = []
    for records in TRIGGERS:
        url = f"kafka://{kafka_address}?partitions=4&prefix=backlog{records}."
        log = open_log(url)
        log.create_topics()
        # Bounds that the smaller flood reaches too.
        environment = {"TIDEWHEEL_LOG": url, "TIDEWHEEL_WAITING_RUNS_MAX": "100"}
        (directory := tmp_path / str(records)).mkdir()
        figures = flood_of_triggers(log, environment, directory, records, input_bytes=INPUT_BYTES)
        assert figures["extents_waiting"] > 0, "nothing was held back"
        peaks.append(figures["scheduler_peak_mb"])
        log.close()
    assert peaks[1] - peaks[0] < TRIGGERS_GROWTH_MB_MAX, peaks


def test_events_that_wait_do_not_fill_the_projector(kafka_address: str, tmp_path: Path) -> None:
    peaks = []
    with EmbeddedPostgres(tmp_path / "postgres", throwaway=True) as postgres:
        for records in EVENTS:
            url = f"kafka://{kafka_address}?partitions=4&prefix=history{records}."
            log = open_log(url)
            log.create_topics()
            with psycopg.connect(postgres.dsn, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE history{records}")
            dsn = make_conninfo(postgres.dsn, dbname=f"history{records}")
            (directory := tmp_path / str(records)).mkdir()
            environment = {"TIDEWHEEL_LOG": url, "TIDEWHEEL_POSTGRES": dsn}
            figures = flood_of_events(log, dsn, environment, directory, records, output_bytes=OUTPUT_BYTES)
            peaks.append(figures["projector_peak_mb"])
            log.close()
    assert peaks[1] - peaks[0] < EVENTS_GROWTH_MB_MAX, peaks
