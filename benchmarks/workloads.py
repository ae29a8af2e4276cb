"""What is run, and how it is driven: DAGs deployed and triggered on the log, their ends awaited in the read model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import psycopg

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.workflow import Action, Concurrency, Python, Run, Task, Workflow
from tidewheel.definition.canonical import canonical_json, version_of
from tidewheel.log.interface import COMMANDS, EVENTS, TRIGGERS, Append, Log, Producer
from tidewheel.wire.codec import decode_event, encode

#: How a task is run: by a function in an embedded worker, by a Python callable in a warm runner, by a shell.
ACTIONS: dict[str, Action] = {
    "embedded": Python(callable="benchmarks.tasks:noop"),
    "runners": Python(callable="benchmarks.tasks:noop"),
    "shell": Run(command=":"),
    "nobody": Run(command=":"),
}
_NO_LIMIT = Concurrency(max_runs=100_000)


def fan(name: str, how: str, width: int = 18) -> Workflow:
    """1 → ``width`` → 1 tasks."""
    middle = [f"middle_{number}" for number in range(width)]
    tasks = [
        Task(id="first", action=ACTIONS[how], pool=how),
        *[Task(id=each, action=ACTIONS[how], pool=how, needs=("first",)) for each in middle],
        Task(id="last", action=ACTIONS[how], pool=how, needs=tuple(middle)),
    ]
    return Workflow(id=name, tasks=tuple(tasks), concurrency=_NO_LIMIT)


def chain(name: str, how: str, length: int = 20) -> Workflow:
    """``length`` tasks one after the other."""
    tasks = [
        Task(id=f"t{number}", action=ACTIONS[how], pool=how, needs=(f"t{number - 1}",) if number else ())
        for number in range(length)
    ]
    return Workflow(id=name, tasks=tuple(tasks), concurrency=_NO_LIMIT)


@dataclass(frozen=True, slots=True)
class Driver:
    """Asks the engine for runs and sees them end."""

    log: Log

    def deploy(self, workflows: Iterable[Workflow]) -> None:
        """Make each workflow current."""
        producer = self.log.producer()
        for workflow in workflows:
            command = c.DeployDag(
                actor="user:bench", dag=workflow.id, version=version_of(workflow), definition=canonical_json(workflow)
            )
            producer.send(Append(COMMANDS, workflow.id.encode(), encode(command)))
        producer.flush(30)
        producer.close()

    def trigger(
        self,
        requests: Iterable[tuple[str, str]],
        through: Producer | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Publish a JSON record on ``triggers`` for each (dag, run_id), through a producer that is up, if given."""
        producer = through or self.log.producer()
        for dag, run_id in requests:
            producer.send(
                Append(TRIGGERS, dag.encode(), msgspec.json.encode({"dag": dag, "run_id": run_id, "inputs": inputs}))
            )
        producer.flush(30)
        if through is None:
            producer.close()

    def ends(self) -> dict[int, int]:
        """Where the journal of DAGs ends now, by partition."""
        return {number: self.log.end_offset(EVENTS, number) for number in range(self.log.partitions)}

    def events_since(self, starts: dict[int, int]) -> list[e.AnyEvent]:
        """The journal from there on."""
        ends = self.ends()
        reader = self.log.reader({(EVENTS, number): start for number, start in starts.items()})
        found: list[e.AnyEvent] = []
        try:
            while any(reader.positions()[EVENTS, number] < end for number, end in ends.items()):
                for record in reader.read(10_000, 0.2):
                    assert record.value is not None
                    found.append(decode_event(record.value).event)
        finally:
            reader.close()
        return found


def wait_for_runs(dsn: str, prefix: str, runs: int, timeout_s: float) -> float:
    """Wait until the read model shows ``runs`` ended runs whose id begins with ``prefix``; gives the instant
    (monotonic)."""
    deadline = time.monotonic() + timeout_s
    query = "SELECT count(*) FROM runs WHERE run_id LIKE %s AND state IN ('success', 'failed', 'cancelled')"
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            row = connection.execute(query, (f"{prefix}%",)).fetchone()
            now = time.monotonic()
            if row is not None and row[0] >= runs:
                return now
            if now > deadline:
                raise RuntimeError(f"{row and row[0]} of {runs} runs '{prefix}…' ended within {timeout_s:.0f} s")
            time.sleep(0.05)
