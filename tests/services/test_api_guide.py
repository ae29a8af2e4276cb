"""The guide's examples work as they stand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tidewheel.log.interface import Log
from tidewheel_services.api.problems import KINDS
from tidewheel_services.worker.main import serve

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture
def worker(engine: Log, tmp_path: Path, run_threads) -> Iterator[None]:
    """A worker with a shell."""
    with run_threads() as threads:
        threads.run(lambda stop: serve(engine, {"default": 4}, tmp_path, 1.0, stop, drain_s=1.0), "worker")
        yield


@pytest.fixture
def api(start_api, engine: Log, projected: str) -> httpx.Client:
    client: httpx.Client = start_api(engine, projected)
    return client


def test_every_example_runs(api: httpx.Client, worker: None, tmp_path: Path) -> None:
    assert shutil.which("curl"), "install curl: the guide's examples use it"
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 8
    script = "\n".join(blocks).replace("http://127.0.0.1:8420", str(api.base_url).rstrip("/"))
    # Every curl must succeed, unless its line says that it may not.
    script = 'set -euo pipefail\ncurl() { command curl --fail-with-body --max-time 20 "$@" && echo; }\n' + script
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "hello Ann\n" in done.stdout, "the followed log"
    assert '"run_id":"second"' in done.stdout
    assert "event: end" in done.stdout
    assert "tidewheel_lag_known 1.0" in done.stdout


def test_every_kind_of_problem_is_in_the_guide() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("| `type` ends in |")[2].partition("\n\n")[0]
    told = {
        (kind, int(status))
        for kinds, status in re.findall(r"^\| (`[^|]+`) \| (\d+) \|", table, re.MULTILINE)
        for kind in re.findall(r"`(\w+)`", kinds)
    }
    assert told == {(kind, status) for kind, (status, _) in KINDS.items()}


def test_the_guides_problem_is_one(api: httpx.Client) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    text = "id: hello\ntasks:\n  - id: greet\n    neds: [a]\n    run: echo\n"
    answer = api.post(
        "/api/v1/dags", params={"source": "hello.yaml"}, content=text, headers={"Content-Type": "application/yaml"}
    )
    assert answer.json() == json.loads(shown)
