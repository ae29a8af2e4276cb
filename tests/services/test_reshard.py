"""`tidewheel reshard` as people run it, on a file and on Kafka, killed on the way."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, Append, Log
from tidewheel.log.opening import open_log
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.wire.codec import encode
from tidewheel_services.cli.resharding import resharded_url

ROOT = Path(__file__).parents[2]
DAGS = 12
_number = itertools.count()

KILLED = """
import os, signal, sys
from tidewheel.log.opening import open_log
from tidewheel.runtime import reshard
reshard._RECORDS_MAX = 8
done = []
def end(records):
    done.append(records)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
old, new = open_log(sys.argv[1]), open_log(sys.argv[2])
new.create_topics()
reshard.reshard(old, new, end)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / name) for name in ("", "services", "projections"))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def filled(url: str) -> Log:
    """A log with some history, a request unread, and nobody on it."""
    log = open_log(url)
    log.create_topics()
    producer = log.producer()
    for number in range(DAGS):
        workflow = Workflow(id=f"dag{number}", tasks=(Task(id="a", action=Run(command="true")),))
        definition = msgspec.json.encode(workflow).decode()
        deploy = c.DeployDag(actor="user:test", dag=workflow.id, version="v1", definition=definition)
        producer.send(Append(COMMANDS, workflow.id.encode(), encode(deploy)))
        producer.send(Append(COMMANDS, workflow.id.encode(), encode(c.StartRun(dag=workflow.id, run_id="r"))))
    producer.flush(20)
    scheduler = Scheduler(log, "s", CelEvaluator())
    while scheduler.status.inputs < 2 * DAGS or scheduler.step(0.1):
        scheduler.step(0.1)
    scheduler.close()
    producer.send(Append(COMMANDS, b"dag3", encode(c.StartRun(dag="dag3", run_id="unread"))))
    producer.close()
    return log


def moved(url: str) -> None:
    log = filled(url)
    target = resharded_url(url, 5)
    killed = run("-c", KILLED, url, target)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run("-m", "tidewheel_services.cli", "reshard", "--partitions", "5", "--log", url, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    before = check_log(log)
    assert told["log"] == target
    assert told["requests"] == 1
    assert told["events"] == before.events
    assert 0 < told["written"] < before.events, "it went on where it was killed"
    new = open_log(target)
    assert new.partitions == 5
    assert check_log(new).ok
    scheduler = Scheduler(new, "s", CelEvaluator())
    while scheduler.status.inputs < 1:
        scheduler.step(0.1)
    scheduler.close()
    assert check_log(new).events > before.events
    new.close()
    log.close()


def test_a_file_is_moved_by_a_process_that_is_killed_and_another(tmp_path: Path) -> None:
    moved(f"sqlite://{tmp_path}/log.db?partitions=2")


@pytest.mark.kafka
def test_topics_are_moved_by_a_process_that_is_killed_and_another(kafka_address: str) -> None:
    moved(f"kafka://{kafka_address}?prefix=reshard{os.getpid()}-{next(_number)}.&partitions=2")


def test_where_the_new_log_goes() -> None:
    assert resharded_url("kafka://h:9092", 64) == "kafka://h:9092?partitions=64&prefix=tidewheel-64."
    url = "kafka://h:9092,i:9092?prefix=flows.&partitions=32&security.protocol=SSL"
    assert resharded_url(url, 8) == "kafka://h:9092,i:9092?prefix=flows-8.&partitions=8&security.protocol=SSL"
    assert resharded_url("sqlite:///data/log.db?partitions=2", 8) == "sqlite:///data/log-8.db?partitions=8"


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/log.db?partitions=2"
    filled(url).close()
    for written in (60, 0):
        done = run("-m", "tidewheel_services.cli", "reshard", "--partitions", "3", "--log", url)
        assert done.returncode == 0, done.stderr
        assert f"13 DAGs and pools are equal in both logs (60 events, {written} written now)" in done.stdout


def test_what_is_in_memory_cannot_be_moved() -> None:
    done = run("-m", "tidewheel_services.cli", "reshard", "--partitions", "5", "--log", "memory:")
    assert done.returncode == 2
    assert "lives in one process" in done.stderr
