"""What is to be told, found in the journal's events: pure, given what was remembered of the run and its version.

An event leads to at most one notice for each target. Its id, ``dag/run/seq``, is that of the event: whoever gets it
twice can see that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from tidewheel.core import events as e
from tidewheel.core.mapping import written_task
from tidewheel.core.workflow import Deadline, Notify, NotifyEvent
from tidewheel_services.notifier.wording import Failure, Told, failure_of, words

#: Failed tasks of a run that its notice tells one by one.
FAILURES_KEPT = 5


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one version of a workflow wants told."""

    notify: tuple[Notify, ...] = ()
    deadlines: tuple[Deadline, ...] = ()
    owner: str = ""

    @property
    def silent(self) -> bool:
        """Nothing at all."""
        return not self.notify and not any(deadline.notify for deadline in self.deadlines)

    def listeners(self, events: Iterable[NotifyEvent]) -> list[str]:
        """The targets of any of these events, each once."""
        wanted = set(events)
        return list(dict.fromkeys(name for one in self.notify if wanted & set(one.events) for name in one.to))


def rules_of(definition: str) -> Rules | None:
    """From a workflow's canonical JSON; None if it wants nothing told.

    A definition that says it in a way unknown here is taken for a silent one.
    """
    try:
        rules = msgspec.json.decode(definition, type=Rules)
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if rules.silent else rules


class RunNote(msgspec.Struct):
    """What is remembered of a live run whose version wants something told."""

    version: str
    failures: list[Failure] = []
    #: Failed tasks altogether.
    failed: int = 0
    #: Mapped tasks of which a retry was told: of ten thousand instances one is enough.
    retried: list[str] = []


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell one target."""

    id: str
    target: str
    event: str
    told: Told
    dag: str
    run_id: str


class Book(Protocol):
    """What has been remembered. ``run`` gives the note itself, to be changed; ``forget`` drops it."""

    def deploy(self, dag: str, version: str, rules: Rules | None) -> None: ...
    def rules(self, dag: str, version: str) -> Rules | None: ...
    def begin(self, dag: str, run_id: str, note: RunNote) -> None: ...
    def run(self, dag: str, run_id: str) -> RunNote | None: ...
    def changed(self, dag: str, run_id: str) -> None: ...
    def forget(self, dag: str, run_id: str) -> None: ...
    def outcome(self, dag: str, before: int) -> str: ...
    def end(self, dag: str, state: str) -> None: ...


#: The events that matter here; all others need not even be decoded.
FOLLOWED: tuple[type[e.Event], ...] = (
    e.DagDeployed,
    e.RunCreated,
    e.DeadlineMissed,
    e.TaskFailed,
    e.LeaseExpired,
    e.RunSucceeded,
    e.RunFailed,
    e.RunCancelled,
)


def take(recorded: e.Recorded, book: Book) -> list[Notice]:
    """Remember what the event says, and give what it leads to."""
    event = recorded.event
    match event:
        case e.DagDeployed():
            book.deploy(event.dag, event.version, rules_of(event.definition))
            return []
        case e.RunCreated():
            if book.rules(event.dag, event.version) is not None:
                book.begin(event.dag, event.run_id, RunNote(version=event.version))
            return []
        case (
            e.TaskFailed() | e.LeaseExpired() | e.DeadlineMissed() | e.RunSucceeded() | e.RunFailed() | e.RunCancelled()
        ):
            note = book.run(event.dag, event.run_id)
            rules = None if note is None else book.rules(event.dag, note.version)
            if note is None or rules is None:
                return []
            return _of_run(event, recorded.seq, note, rules, book)
    return []


_OfRun = e.TaskFailed | e.LeaseExpired | e.DeadlineMissed | e.RunSucceeded | e.RunFailed | e.RunCancelled


def _of_run(event: _OfRun, seq: int, note: RunNote, rules: Rules, book: Book) -> list[Notice]:
    names: list[NotifyEvent] = []
    targets: list[str] = []
    match event:
        case e.TaskFailed() | e.LeaseExpired():
            names = _task_failed(event, note)
            book.changed(event.dag, event.run_id)
        case e.DeadlineMissed():
            names = [] if event.before_ms else ["deadline_missed"]
            if event.deadline < len(rules.deadlines) and rules.deadlines[event.deadline].notify:
                targets = [rules.deadlines[event.deadline].notify]
        case e.RunFailed():
            names = ["run_failed"]
        case e.RunSucceeded():
            names = ["run_succeeded"]
            if book.outcome(event.dag, event.at) == "failed":
                names = ["first_success_after_failure", "run_succeeded"]
    targets = list(dict.fromkeys([*targets, *rules.listeners(names)]))
    name = _name(event, names)
    found = []
    if targets:
        told = words(event, name, note.failures, note.failed, rules.owner)
        notice_id = f"{event.dag}/{event.run_id}/{seq}"
        found = [
            Notice(id=notice_id, target=target, event=name, told=told, dag=event.dag, run_id=event.run_id)
            for target in targets
        ]
    if isinstance(event, e.RunSucceeded | e.RunFailed | e.RunCancelled):
        book.forget(event.dag, event.run_id)
        if not isinstance(event, e.RunCancelled):
            book.end(event.dag, "failed" if isinstance(event, e.RunFailed) else "success")
    return found


def _name(event: _OfRun, names: list[NotifyEvent]) -> str:
    if isinstance(event, e.DeadlineMissed):
        return "deadline_near" if event.before_ms else "deadline_missed"
    return names[0] if names else ""


def _task_failed(event: e.TaskFailed | e.LeaseExpired, note: RunNote) -> list[NotifyEvent]:
    """Keep the failure for the run's end. Instances of a mapped task are told of by their task's end."""
    written = written_task(event.task)
    instance = written != event.task
    if event.retry_at is not None:
        if instance and written in note.retried:
            return []
        if instance:
            note.retried.append(written)
        return ["task_retrying"]
    note.failed += 1
    if len(note.failures) < FAILURES_KEPT:
        note.failures.append(failure_of(event))
    return [] if instance else ["task_failed"]
