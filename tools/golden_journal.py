"""Write golden journals: stored logs whose states every later version of the code must still come to.

``tools/golden_journal.py`` runs a fixed story with today's code and writes ``tests/golden/unreleased.jsonl``: the
records of journals and snapshots as they are in the log, and the states they lead to. A release renames it to its
number; from then on it is never written again. ``--states FILE`` keeps a file's records and writes its states anew: for
a change of what is stored that is meant, and explained in the commit.

The first line says format, partitions, states and their hashes; each other line is a record.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.mail import AssignTask
from tidewheel.core.snapshot import FORMAT, encode_snapshot, state_hash
from tidewheel.core.state import Aggregate
from tidewheel.core.workflow import Concurrency, Deadline, Retry, Run, Schedule, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import JOURNALS, SNAPSHOTS, Append
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import AggregateKey, Shard
from tidewheel.testing.world import Outcome, World

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
UNRELEASED = GOLDEN / "unreleased.jsonl"
STORED = (*JOURNALS, SNAPSHOTS)


class Stored(msgspec.Struct, frozen=True):
    """A golden file."""

    format: str
    partitions: int
    #: ``kind/name`` → the state as plain data, and its hash.
    states: dict[str, Any]
    hashes: dict[str, str]


def story() -> World:
    """Runs by schedule and on request that end in every way, a pause, a scheduler that dies; some go on at the end."""
    world = World(CelEvaluator(), seed=7, partitions=2, schedulers=2, checkpoint_events=20, markers=False)

    def behaviour(work: AssignTask) -> Outcome:
        silent = work.task == "silent" and work.attempt == 1
        fails = "exit_code" if work.task == "flaky" and work.attempt == 1 else None
        return Outcome(takes_ms=600_000 if work.run_id == "long" else 2_000, silent=silent, fails=fails)  # type: ignore[arg-type]

    for number in range(2):
        world.add_worker(f"w{number}", slots=3, behaviour=behaviour)

    def task(name: str, *needs: str, **more: Any) -> Task:
        return Task(id=name, action=Run(command="true"), needs=needs, **more)

    flaky = task("flaky", "a", retry=Retry(max=2, delay_ms=1_000))
    limits = Concurrency(max_runs=2, max_tasks=3)
    world.deploy(
        Workflow(id="orders", tasks=(task("a"), flaky, task("b", "a"), task("z", "flaky", "b")), concurrency=limits)
    )
    world.deploy(Workflow(id="minutely", tasks=(task("a"),), schedule=Schedule(cron=("* * * * *",), catchup="latest")))
    late = (Deadline(within_ms=20_000, from_="started"), Deadline(within_ms=5_400_000, action="fail"))
    world.deploy(Workflow(id="lossy", tasks=(task("silent"), task("after", "silent")), deadlines=late))
    world.ask(c.ConfigurePool(pool="default", slots=5, actor="user:ann"))
    for number in range(3):
        world.ask(c.StartRun(dag="orders", run_id=f"r{number}"))
    world.ask(c.StartRun(dag="lossy", run_id="r"))
    world.advance(60_000)
    world.ask(c.CancelRun(dag="orders", run_id="r2", reason="not needed"))
    world.ask(c.PauseDag(dag="minutely", reason="a pause"))
    world.kill_scheduler("scheduler-1")
    world.advance(150_000)
    world.ask(c.UnpauseDag(dag="minutely"))
    world.ask(c.RemoveDag(dag="lossy"))
    world.ask(c.StartRun(dag="orders", run_id="long"))
    world.advance(30_000)
    world.check()
    return world


def plain(state: Aggregate) -> Any:
    """The stored form of a state as JSON knows it."""
    return json.loads(msgspec.json.encode(msgspec.msgpack.decode(encode_snapshot(state)), order="sorted"))


def states_of(log: MemoryLog, *, snapshots: bool) -> dict[AggregateKey, Aggregate]:
    """What today's code makes of a log."""
    found: dict[AggregateKey, Aggregate] = {}
    for number in range(log.partitions):
        shard = Shard(number)
        bring_up_to_date([shard], log, lambda: 0, snapshots=snapshots)
        found.update(shard.aggregates)
    return found


def write(path: Path, log: MemoryLog) -> None:
    """Store a log and the states it leads to."""
    states = {"/".join(key): state for key, state in sorted(states_of(log, snapshots=False).items())}
    head = Stored(
        format=FORMAT,
        partitions=log.partitions,
        states={name: plain(state) for name, state in states.items()},
        hashes={name: state_hash(state) for name, state in states.items()},
    )
    lines = [msgspec.json.encode(head).decode(), *_records(log)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _records(log: MemoryLog) -> Iterator[str]:
    for topic in STORED:
        for partition in range(log.partitions):
            for record in log.reader({(topic, partition): 0}).read(1_000_000, 0):
                value = None if record.value is None else base64.b64encode(record.value).decode()
                yield json.dumps([topic, partition, (record.key or b"").decode(), value], separators=(",", ":"))


def read(lines: Iterable[str], *, topics: tuple[str, ...] = STORED) -> tuple[Stored, MemoryLog]:
    """A golden file as a log."""
    rest = iter(lines)
    head = msgspec.json.decode(next(rest), type=Stored)
    log = MemoryLog(head.partitions, markers=False)
    producer = log.producer()
    for line in rest:
        topic, partition, key, value = json.loads(line)
        if topic in topics:
            data = None if value is None else base64.b64decode(value)
            producer.send(Append(topic, key.encode(), data, partition=partition))
    return head, log


def main(arguments: list[str]) -> None:
    """Write what the arguments ask for."""
    if arguments[:1] == ["--states"]:
        path = Path(arguments[1])
        _, log = read(path.read_text(encoding="utf-8").splitlines())
        write(path, log)
    else:
        path = UNRELEASED
        write(path, story().log)
    sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
