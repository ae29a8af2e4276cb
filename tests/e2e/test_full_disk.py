"""The disk is full under `tidewheel dev`: log, Postgres and scratch files at once. Nothing is lost, and it goes on by
itself."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.e2e.disks import Disk, small_disk
from tests.e2e.running import Process, document, eventually, tidewheel

pytestmark = pytest.mark.postgres

FLOW = """\
id: copy
inputs: {text: {type: string, default: ""}}
tasks:
  - {id: work, run: 'echo "{}" > "$TIDEWHEEL_OUTPUT"', retry: {max: 20, delay: 1s}}
"""
#: Fills what SQLite may still have to itself.
LARGE = "x" * 60_000
RECOVERY_S = 90


@pytest.fixture
def disk() -> Iterator[Disk]:
    with small_disk(160) as found:
        yield found


@contextlib.contextmanager
def a_dev(disk: Disk, tmp_path: Path) -> Iterator[tuple[Process, str]]:
    flows = disk.path / "flows"
    flows.mkdir()
    (flows / "copy.yaml").write_text(FLOW)
    (disk.path / "scratch").mkdir(mode=0o777)
    env = {"TMPDIR": str(disk.path / "scratch")}
    with Process("dev", flows, "--port", "0", output=tmp_path / "dev.out", env=env) as process:
        said = process.wait_for("API at ", 60)
        yield process, said.split("API at ")[1].split()[0]


def test_a_full_disk_stops_and_loses_nothing(disk: Disk, tmp_path: Path) -> None:
    with a_dev(disk, tmp_path) as (process, url):
        everything = environment(disk)
        assert ask(url, "before", "").status_code == 201
        eventually(lambda: state(url, "before") == "success")
        asked: list[str] = []
        with psycopg.connect(everything["TIDEWHEEL_POSTGRES"], autocommit=True) as postgres, disk.full(process.pid):
            refused = None
            while refused is None:
                asked.append(f"large-{len(asked)}")
                answer = ask(url, asked[-1], LARGE)
                refused = None if answer.status_code == 201 else answer
                assert len(asked) < 500, "the disk does not get full"
            assert refused.status_code == 503, refused.text
            assert re.search("no space left|disk I/O error", refused.json()["detail"])
            # Where a large request finds no room, a few small ones may.
            told = None
            while told is None or told.returncode == 0:
                asked.append(f"small-{len(asked)}")
                told = tidewheel("trigger", "copy", "--run-id", asked[-1], env={"TIDEWHEEL_API": url})
                assert len(asked) < 500, "there is room for ever more small requests"
            assert (told.returncode, told.stderr.count("\n")) == (2, 1), told.stderr
            process.wait_for("the log cannot be written; trying again")
            if disk.real:
                end_by_itself(postgres)
                process.wait_for("Postgres cannot be started; trying again")
        for run_id in asked:
            eventually(lambda run_id=run_id: ask(url, run_id, "").status_code in (200, 201), RECOVERY_S, run_id)
        for run_id in asked:
            ended = eventually(lambda run_id=run_id: ended_as(url, run_id), RECOVERY_S, run_id)
            assert ended == "success", run_id
        assert process.alive
        assert "Traceback" not in process.said
        everything = environment(disk)
        proof = document("verify", env=everything)
        assert (proof["ok"], proof["violations"]) == (True, [])
        runs = document("runs", "--limit", "1000", env={"TIDEWHEEL_API": url})
        assert sorted(run["run_id"] for run in runs) == sorted(["before", *asked])
        assert document("projection", "verify", env=everything)["ok"]


def end_by_itself(postgres: psycopg.Connection[Any]) -> None:
    """What a long outage comes to: a new file is needed for what Postgres writes ahead, and it gives up."""
    with contextlib.suppress(psycopg.Error):
        for _ in range(50):
            postgres.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000))")
            postgres.execute("SELECT pg_switch_wal()")
        raise AssertionError("Postgres does not mind")


def environment(disk: Disk) -> dict[str, str]:
    lines = (disk.path / "flows" / ".tidewheel" / "environment").read_text().splitlines()
    pairs = (line.removeprefix("export ").split("=", 1) for line in lines)
    return {name: value.strip("'") for name, value in pairs}


def ask(url: str, run_id: str, text: str) -> httpx.Response:
    body = {"run_id": run_id, "inputs": {"text": text}}
    return httpx.post(f"{url}/api/v1/dags/copy/runs", json=body, timeout=30)


def state(url: str, run_id: str) -> Any:
    return httpx.get(f"{url}/api/v1/dags/copy/runs/{run_id}", timeout=30).json().get("state")


def ended_as(url: str, run_id: str) -> Any:
    run = httpx.get(f"{url}/api/v1/dags/copy/runs/{run_id}", timeout=30).json()
    return run.get("ended_at") and run["state"]


def test_a_file_system_that_cannot_be_written_is_named(disk: Disk) -> None:
    flows = disk.path / "flows"
    flows.mkdir()
    (flows / "copy.yaml").write_text(FLOW)
    with disk.read_only():
        refused = tidewheel("dev", flows, "--port", "0")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert str(flows) in refused.stderr


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / ".tidewheel").write_text("a file where the state should be")
    refused = tidewheel("dev", flows, "--port", "0")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert str(flows / ".tidewheel") in refused.stderr
