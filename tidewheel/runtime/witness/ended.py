"""The ended runs of one DAG as the witness remembers them: the newest as they are, of others a hash of what it saw.

A run that was recalled says in its event what it had come to. That is compared here with what the journal said when it
ended, by other means than the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from tidewheel.core import events as e
from tidewheel.core.workflow import Switch, Workflow
from tidewheel.runtime.witness.definition import Definition
from tidewheel.runtime.witness.findings import Findings
from tidewheel.runtime.witness.run import RunWitness
from tidewheel.runtime.witness.standing import Limits
from tidewheel.runtime.witness.task import TaskRecord, output_hash

#: So many ended runs of a DAG may be recalled at most: the last 10,000 of docs/operating-runs.md, and up to 100 more,
#: since they are forgotten by the hundred.
RECALLABLE_RUNS = 10_100


class EndedRuns:
    """Runs that have ended, oldest end first."""

    __slots__ = ("_came_to", "_findings", "_kept", "_limits", "_name", "_texts")

    def __init__(self, name: str, limits: Limits, findings: Findings) -> None:
        self._name = name
        self._limits = limits
        self._findings = findings
        self._kept: dict[str, RunWitness] = {}
        self._came_to: dict[str, bytes] = {}
        #: The definitions that ever were, as hashes.
        self._texts: dict[str, bytes] = {}

    @property
    def versions(self) -> set[str]:
        """Those of the runs that are kept, which are known without being brought."""
        return {run.definition.version for run in self._kept.values()}

    def deployed(self, event: e.DagDeployed) -> None:
        """A definition that a recalled run may bring back."""
        self._texts[event.version] = _hash(event.definition)

    def add(self, run_id: str, run: RunWitness, keep_runs: int) -> None:
        """The run has ended, in a DAG that keeps so many."""
        self._kept[run_id] = run
        while len(self._kept) > keep_runs:
            del self._kept[next(iter(self._kept))]
        self._came_to.pop(run_id, None)
        self._came_to[run_id] = _came_to(run)
        if len(self._came_to) > RECALLABLE_RUNS:
            del self._came_to[next(iter(self._came_to))]

    def drop(self, run_id: str) -> None:
        """It begins anew, whatever it came to."""
        self._kept.pop(run_id, None)
        self._came_to.pop(run_id, None)

    def reopen(self, event: e.RunReopened, definitions: dict[str, Definition]) -> RunWitness | None:
        """The run that goes on, with one of these definitions, or one that it brings; None, and told, if it can not."""
        name = f"run {self._name}/{event.run_id}"
        run, came_to = self._kept.get(event.run_id), self._came_to.get(event.run_id)
        self.drop(event.run_id)
        if event.definition:
            self._bring(event, definitions)
        if event.recalled is None:
            if run is None:
                self._findings.add(2, f"{name} is reopened, but is live, or not kept and not recalled")
            return run
        try:
            packed = msgspec.msgpack.decode(event.recalled)
            said = self._unpacked(event, packed, definitions)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, IndexError) as error:
            self._findings.add(2, f"{name} is recalled by what can not be read: {error!r}")
            return run
        if came_to is None:
            self._findings.add(2, f"{name} is recalled, but is live, or not among the last {RECALLABLE_RUNS:,} ended")
        elif packed["run_id"] != event.run_id or _came_to(said) != came_to:
            self._findings.add(2, f"{name} is recalled as something else than it came to")
        return run or said

    def _bring(self, event: e.RunReopened, definitions: dict[str, Definition]) -> None:
        if self._texts.get(event.version) != _hash(event.definition):
            self._findings.add(4, f"a definition comes back as version {event.version} that was never deployed so")
        workflow = msgspec.json.decode(event.definition, type=Workflow)
        definitions[event.version] = Definition(event.version, workflow)

    def _unpacked(
        self, event: e.RunReopened, packed: Mapping[str, Any], definitions: Mapping[str, Definition]
    ) -> RunWitness:
        """The run as the event says that it had ended."""
        created = e.RunCreated(
            dag=event.dag,
            run_id=event.run_id,
            at=packed["created_at"],
            version=packed["version"],
            kind=packed["kind"],
            logical_date=packed["logical_date"],
        )
        definition = definitions[event.version]
        if packed["version"] != event.version:  # its own is not needed any more, but it is another one
            definition = Definition(packed["version"], definition.workflow)
        run = RunWitness(f"{self._name}/{event.run_id}", definition, self._limits, self._findings, created)
        run.attempts_from = packed["attempts_from"]
        tasks, gone = msgspec.msgpack.decode(packed["tasks"])
        run.attempts.update(dict(gone))
        for name, phase, attempt, output, _, fan in tasks:
            run.tasks[name] = _record(phase, attempt, output, fan)
            if output is not None and packed["version"] == event.version and _is_switch(definition, name):
                run.taken[name] = definition.decided(name, output)[0]
        return run


def _is_switch(definition: Definition, name: str) -> bool:
    written = definition.tasks.get(name)
    return written is not None and isinstance(written.action, Switch)


def _record(phase: str, attempt: int, output: str | None, fan: Mapping[str, Any] | None) -> TaskRecord:
    record = TaskRecord(attempt)
    record.phase = phase
    record.output = output_hash(output)
    if fan is not None:
        success, failed, skipped, upstream_failed, cancelled = fan["ended"]
        record.items, record.begun = fan["items"], fan["begun"]
        record.failed = failed + upstream_failed + cancelled
        record.ended = success + skipped + record.failed
        record.again, record.early = set(fan["again"]), set(fan["early"])
    return record


def _came_to(run: RunWitness) -> bytes:
    """How the run's tasks ended, by which attempts and with which outputs."""
    tasks = sorted((name, task.phase, task.attempt, task.output, task.items) for name, task in run.tasks.items())
    gone = sorted((name, attempt) for name, attempt in run.attempts.items() if attempt and name not in run.tasks)
    return _hash(repr((run.definition.version, run.attempts_from, run.logical_date, tasks, gone)))


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
