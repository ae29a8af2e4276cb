"""`tidewheel journal trim` and `verify` behind it, as people run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tidewheel.core import commands as c
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, Append
from tidewheel.log.sqlite import SqliteLog
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.wire.codec import encode

ROOT = Path(__file__).parents[2]


def tidewheel(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / name) for name in ("", "services", "projections"))
    command = [sys.executable, "-m", "tidewheel_services.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": path}
    )


def test_a_journal_is_trimmed_only_when_told_and_verified_afterwards(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", 1)
    log.create_topics()
    producer = log.producer()
    for slots in range(1, 61):
        producer.send(Append(COMMANDS, b"etl", encode(c.ConfigurePool(pool="etl", slots=slots, actor="user:test"))))
    producer.close()
    scheduler = Scheduler(log, "s", CelEvaluator(), checkpoint_events=40)
    while scheduler.status.inputs < 60 or scheduler.step(0.1):
        scheduler.step(0.1)
    scheduler.close()
    url = f"sqlite://{tmp_path}/log.db"
    trim = ("journal", "trim", "--keep-days", "0", "--log", url)

    unasked = tidewheel(*trim, "--postgres", "postgresql://nobody@127.0.0.1:1/none")
    assert unasked.returncode == 1
    assert "the read model cannot be asked how far it has read" in unasked.stderr

    shown = tidewheel(*trim, "--without-read-model")
    assert shown.returncode == 0, shown.stderr
    assert "offsets would be deleted; --yes does it" in shown.stdout
    assert log.start_offset("pool-events", 0) == 0

    done = tidewheel(*trim, "--without-read-model", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["trimmed"]
    assert told["offsets"] >= 40
    assert log.start_offset("pool-events", 0) > 0
    log.close()

    verified = tidewheel("verify", "--log", url)
    assert verified.returncode == 0, verified.stderr
    assert "1 journal partitions were trimmed" in verified.stdout
    assert "verify: ok" in verified.stdout
