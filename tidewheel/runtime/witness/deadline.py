"""The witness of one run's deadlines: each is missed when its time has come, once, and before the run's end."""

from __future__ import annotations

from tidewheel.core import events as e
from tidewheel.core.workflow import Workflow
from tidewheel.runtime.witness.findings import Findings


class DeadlineWitness:
    """What its version says of a run's deadlines, and which it has missed."""

    __slots__ = ("_created_at", "_due_from", "_missed", "_name", "_workflow", "failure", "started_at")

    def __init__(self, name: str, workflow: Workflow, created: e.RunCreated) -> None:
        self._name = name
        self._workflow = workflow
        self._created_at = created.at
        self._due_from = created.logical_date if created.kind == "scheduled" else created.at
        self._missed: set[int] = set()
        self.started_at: int | None = None
        #: Why a deadline fails the run.
        self.failure = ""

    def miss(self, event: e.DeadlineMissed, cancelled: bool, findings: Findings) -> None:
        """Judge the next one missed, of a run that has been cancelled or not."""
        name = f"deadline {event.deadline} of {self._name}"
        if not 0 <= event.deadline < len(self._workflow.deadlines):
            findings.add(4, f"{name}: its version has {len(self._workflow.deadlines)}")
            return
        wanted = self._workflow.deadlines[event.deadline]
        said = (event.counted_from, event.within_ms, event.before_ms, event.action)
        if said != (wanted.from_, wanted.within_ms, wanted.before_ms, wanted.action):
            findings.add(4, f"{name} is said to be {said}; its version has {wanted}")
        if event.deadline in self._missed:
            findings.add(2, f"{name} is missed a second time")
        due = self._due(event.deadline)
        if due is None or event.due_at != due or event.at < due:
            findings.add(4, f"{name} is missed at {event.at} as due at {event.due_at}; it is due at {due}")
        if not event.reason:
            findings.add(9, f"DeadlineMissed of {self._name} gives no reason")
        self._missed.add(event.deadline)
        if event.action == "fail" and not cancelled:
            self.failure = event.reason

    def settle(self, workflow: Workflow) -> None:
        """The run had ended and is live again: no deadline of it fires any more."""
        self._workflow = workflow
        self._missed = set(range(len(workflow.deadlines)))
        self.failure = ""

    def end(self, event: e.RunSucceeded | e.RunFailed | e.RunCancelled, findings: Findings) -> None:
        """Judge the run's end: nothing it missed by then goes unsaid."""
        for index in range(len(self._workflow.deadlines)):
            due = self._due(index)
            if index not in self._missed and due is not None and due <= event.at:
                findings.add(4, f"{self._name} ends at {event.at} and deadline {index}, due at {due}, was never missed")

    def _due(self, index: int) -> int | None:
        deadline = self._workflow.deadlines[index]
        begins = {"scheduled": self._due_from, "queued": self._created_at, "started": self.started_at}
        begin = begins[deadline.from_]
        return None if begin is None else begin + deadline.within_ms
