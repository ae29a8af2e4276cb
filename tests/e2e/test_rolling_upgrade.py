"""Old and new code side by side on one Kafka, shards handed to and fro, forward and back, until something new is used.

The new release is this code with one more field in an event (``DagPaused.ticket``) and another format of snapshots.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tidewheel.core import commands as c
from tidewheel.core.events import AnyEvent, DagDeployed, RunCreated
from tidewheel.core.workflow import Run, Task, Workflow
from tidewheel.log.interface import COMMANDS, EVENTS, Append, Log
from tidewheel.log.kafka import KafkaLog
from tidewheel.log.partition import partition_of
from tidewheel.testing.log_contract.driver import read_all
from tidewheel.wire.codec import DecodeError, decode_event, encode
from tools.publish_schemas import publish

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("rolling_scheduler.py")
SHARDS = 4
DAGS = [f"dag{number}" for number in range(12)]
PATIENCE_S = 60.0
_number = itertools.count()

FOLDED = """
import json, sys
from tidewheel.core.snapshot import encode_snapshot
from tidewheel.log.opening import open_log
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import Shard
import msgspec, structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
log = open_log(sys.argv[1])
found = {}
for snapshots in (True, False):
    for number in range(log.partitions):
        shard = Shard(number)
        bring_up_to_date([shard], log, lambda: 0, snapshots=snapshots)
        for key, state in shard.aggregates.items():
            plain = msgspec.json.encode(msgspec.msgpack.decode(encode_snapshot(state)), order="sorted").decode()
            assert found.setdefault("/".join(key), plain) == plain, key
print(json.dumps(found))
"""


def patched(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next release."""
    root = tmp_path_factory.mktemp("newer")
    for name in ("tidewheel", "schemas"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    docs = '    """Scheduled runs stop, requested runs wait."""\n\n'
    patched(root / "tidewheel/core/events.py", docs, f'{docs}    ticket: str = ""\n')
    said = "e.DagPaused(dag=command.dag, at=d.now, actor=command.actor, reason=command.reason)"
    ticket = said.replace("reason=command.reason", 'reason=command.reason, ticket=command.reason.partition("#")[2]')
    patched(root / "tidewheel/core/decide/dag.py", said, ticket)
    patched(root / "tidewheel/core/snapshot.py", "FORMAT = _shape()", 'FORMAT = _shape() + "+"')
    schema = root / "schemas/events/dag_paused.avsc"
    document = json.loads(schema.read_text(encoding="utf-8"))
    places = [field["name"] for field in document["fields"]]
    document["fields"].insert(places.index("cause"), {"name": "ticket", "type": "string", "default": ""})
    schema.write_text(json.dumps(document), encoding="utf-8")
    assert publish(root / "schemas", root / "golden.jsonl") == ["tidewheel.events.DagPaused"]
    return root


class Process:
    """A scheduler of one release."""

    def __init__(self, release: Path, url: str, instance: str, told: Path) -> None:
        self._told = told
        self._errors = told.with_suffix(".err")
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), url, instance],
            stdin=subprocess.PIPE,
            stdout=told.open("w"),
            stderr=self._errors.open("w"),
            env={**os.environ, "PYTHONPATH": str(release), "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def owns(self) -> set[str]:
        lines = self._told.read_text(encoding="utf-8").splitlines()
        return set(lines[-1].split()) if lines else set()

    def says(self, text: str) -> bool:
        return text in self._errors.read_text(encoding="utf-8")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0, self._errors.read_text(encoding="utf-8")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def folded(release: Path, url: str) -> dict[str, str]:
    """Every state, from snapshots and from the beginning alike, as a release sees it."""
    done = subprocess.run(
        [sys.executable, "-c", FOLDED, url],
        cwd=release,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(release), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


class Installation:
    """A log, its address, and schedulers of both releases on it."""

    def __init__(self, address: str, newer: Path, folder: Path) -> None:
        prefix = f"rolling{os.getpid()}-{next(_number)}."
        self.url = f"kafka://{address}?prefix={prefix}&partitions={SHARDS}"
        self.log: Log = KafkaLog(address, prefix, SHARDS)
        self.log.create_topics()
        self.newer = newer
        self.folder = folder
        self.started: list[Process] = []
        self.producer = self.log.producer()

    def start(self, release: Path, instance: str) -> Process:
        told = self.folder / f"{instance}-{len(self.started)}"
        self.started.append(Process(release, self.url, instance, told))
        return self.started[-1]

    def send(self, *commands: c.DagCommand) -> None:
        for command in commands:
            self.producer.send(Append(COMMANDS, command.dag.encode(), encode(command)))
        self.producer.flush(20)

    def journal(self, shard: int) -> Iterator[AnyEvent | None]:
        """The events of a shard; None for one that this release does not know."""
        for record in read_all(self.log, EVENTS, shard):
            try:
                yield decode_event(record.value or b"").event
            except DecodeError:
                yield None

    def deployed(self) -> bool:
        found = [event for shard in range(SHARDS) for event in self.journal(shard)]
        return sum(isinstance(event, DagDeployed) for event in found) == len(DAGS)

    def created(self, run_id: str) -> set[str]:
        """The DAGs that have this run."""
        found = [event for shard in range(SHARDS) for event in self.journal(shard)]
        return {event.dag for event in found if isinstance(event, RunCreated) and event.run_id == run_id}


@pytest.fixture
def installation(kafka_address: str, newer: Path, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka_address, newer, tmp_path)
    yield made
    for process in made.started:
        process.kill()
    made.log.close()


def everything(process: Process) -> Callable[[], bool]:
    return lambda: process.owns() == {"0", "1", "2", "3"}


def test_forward_and_back_side_by_side_until_something_new_is_used(installation: Installation) -> None:
    one = installation
    old = one.start(ROOT, "a")
    for dag in DAGS:
        definition = msgspec.json.encode(Workflow(id=dag, tasks=(Task(id="t", action=Run(command="true")),))).decode()
        one.send(c.DeployDag(actor="user:t", dag=dag, version="v1", definition=definition))
    wait_until(one.deployed, "the old release works")

    new = one.start(one.newer, "b")
    wait_until(lambda: len(old.owns()) == len(new.owns()) == 2, "they share the shards")
    one.send(*(c.StartRun(dag=dag, run_id="both") for dag in DAGS), *(c.PauseDag(dag=dag) for dag in DAGS))
    wait_until(lambda: one.created("both") == set(DAGS), "both answer")

    old.stop()
    wait_until(everything(new), "the new one takes over")
    one.send(*(c.UnpauseDag(dag=dag) for dag in DAGS), *(c.StartRun(dag=dag, run_id="new") for dag in DAGS))
    wait_until(lambda: one.created("new") == set(DAGS), "the new one answers")

    old = one.start(ROOT, "a")
    wait_until(lambda: len(old.owns()) == len(new.owns()) == 2, "back to both")
    new.stop()
    wait_until(everything(old), "back to the old one")
    one.send(*(c.StartRun(dag=dag, run_id="back") for dag in DAGS))
    wait_until(lambda: one.created("back") == set(DAGS), "the old one answers again")
    states = folded(ROOT, one.url)
    assert states == folded(one.newer, one.url)
    assert all(all(f'"{run}"' in states[f"dag/{dag}"] for run in ("both", "new", "back")) for dag in DAGS)

    # Now the new release uses what it alone knows.
    new = one.start(one.newer, "b")
    wait_until(lambda: len(new.owns()) == 2, "both again")
    old.stop()
    wait_until(everything(new), "only the new one")
    used = partition_of(b"dag0", SHARDS)
    one.send(c.PauseDag(dag="dag0", reason="as in #42"))
    wait_until(lambda: None in one.journal(used), "the new field is written")
    new.stop()
    old = one.start(ROOT, "a")
    wait_until(lambda: old.says("unknown_schema") and old.says("did a newer release write it?"), "the old one says why")
    one.send(*(c.StartRun(dag=dag, run_id="late") for dag in DAGS))
    others = {dag for dag in DAGS if partition_of(dag.encode(), SHARDS) != used}
    wait_until(lambda: one.created("late") >= others, "its other shards go on")
    assert one.created("late") == others, "what it cannot know it does not guess"
    old.stop()
    new = one.start(one.newer, "b")
    wait_until(lambda: one.created("late") == set(DAGS), "the new one goes on where nothing was lost")
    new.stop()
    states = folded(one.newer, one.url)
    assert all('"late"' in states[f"dag/{dag}"] for dag in DAGS)
