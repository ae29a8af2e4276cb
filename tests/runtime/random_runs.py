"""Random DAGs with random fates, and the workers that bring these about on the bare rules, in random order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, get_args

from tests.runtime.reference_model import Fates, output_length
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import AssignTask, StopAttempt
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import Concurrency, Input, Run, TriggerRule, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.testing.bare_engine import BareEngine
from tidewheel.testing.workflows import Style, random_tasks
from tidewheel.testing.world import START_MS

EVALUATOR = CelEvaluator()
#: Rules that let a task run only once all its upstreams have ended, so that their states are the same in any order.
_SETTLED = {"all_success", "all_failed", "all_done", "none_failed", "none_failed_min_one_success", "none_skipped"}
_STATES = ("success", "failed", "skipped", "upstream_failed")
#: A worker's term is 60 s.
_RENEW_MS = 20_000
#: What a report may wait for others before its lease runs out.
_HELD_MS_MAX = 10_000


def _condition(rng: Random, rule: TriggerRule, needs: Sequence[str]) -> str | None:
    plain = rng.choice([None] * 20 + ["true", "1 > 2", "inputs.n > 3", "1 / 0 > 1"])
    if needs and rule in _SETTLED and rng.random() < 0.1:
        return f'tasks.{rng.choice(needs)}.state == "{rng.choice(_STATES)}"'
    return plain


def _items(rng: Random, rule: TriggerRule, needs: Sequence[str]) -> Any:
    if needs and rule in _SETTLED and rng.random() < 0.15:
        return f"${{{{ tasks.{rng.choice(needs)}.output }}}}"
    return rng.choice([None, None, None, None, list(range(rng.randint(0, 4)))])


_STYLE = Style(
    tasks_max=30,
    needs_max=4,
    rules=("all_success", "all_done", "none_failed", *get_args(TriggerRule)),
    action=lambda rng: Run(command="true"),
    condition=_condition,
    items=_items,
    delays_ms=(0, 1, 500),
    losses_max=2,
    widths=(1, 1, 1, 2),
    switches=0.2,
    branch_conditions=("true", "1 > 2", "1 > 2", "1 > 2", *["inputs.n > 3"] * 4, "1 / 0 > 1"),
)


def random_workflow(rng: Random, dag: str = "d") -> Workflow:
    """Up to 30 tasks with any rule; no schedule."""
    limits = Concurrency(max_runs=rng.randint(1, 3), max_tasks=rng.choice([None, 1, 5]))
    return Workflow(id=dag, tasks=random_tasks(rng, _STYLE), concurrency=limits, inputs={"n": Input(type="integer")})


def random_fates(rng: Random) -> Fates:
    """How attempts end, decided when first asked for and the same ever after."""
    lot = rng.random()

    @cache
    def fates(name: str) -> list[str]:
        return [*Random(f"{lot}{name}").choices(["ok", "fail", "lose"], [12, 3, 1], k=6), "ok"]

    return fates


@dataclass
class Attempt:
    """A lease that a worker holds."""

    work: AssignTask
    fate: str
    since: int
    told_to_stop: bool = False


@dataclass
class Crew:
    """Workers that bring the fates of attempts about, one at a time and in random order.

    They report starts or not, renew, fall silent instead of saying that they are lost, stop when they are told to or
    report their result all the same, and now and then repeat a report of long ago.
    """

    rng: Random
    #: By DAG and run.
    fates: dict[tuple[str, str], Fates]
    engine: BareEngine = field(init=False)
    held: list[Attempt] = field(default_factory=list)
    #: By run: what each attempt (task, number) that was live when it was cancelled was then reported as; "" if it
    #: never was.
    said: dict[tuple[str, str], dict[tuple[str, int], str]] = field(default_factory=lambda: defaultdict(dict))
    #: Runs that have ended.
    ended: int = 0

    def __post_init__(self) -> None:
        self.engine = BareEngine(Rules(evaluator=EVALUATOR, step=self.rng.choice([1, 2, 200])), START_MS)
        self._slots = {"w0": self.rng.randint(2, 8), "w1": self.rng.randint(1, 4)}
        self._joined = self._seen = 0
        self._reports: list[c.Report] = []
        self._join()

    def _join(self) -> None:
        self._joined = self.engine.now
        for worker, slots in self._slots.items():
            join = c.JoinPool(actor=f"worker:{worker}", pool="default", worker=worker, slots=slots, mail_partition=0)
            self.engine.ask(join)

    def step(self) -> None:
        """Let a little time pass and one worker act; or, if none has anything to say, time until something is due."""
        engine = self.engine
        self._read_mail()
        able = [attempt for attempt in self.held if attempt.fate != "silent"]
        if able:
            engine.now += self.rng.randint(0, 20)
            attempt = self.rng.choice(able)
            oldest = min(able, key=lambda attempt: attempt.since)
            self._act(oldest if engine.now - oldest.since > _HELD_MS_MAX else attempt)
        else:
            engine.allocate()
            due = engine.next_due()
            assert due is not None, "nothing is left to happen"
            engine.now = max(engine.now, min(due, self._joined + _RENEW_MS))
        if engine.now - self._joined >= _RENEW_MS:
            self._join()
        engine.fire_due()
        self.ended += sum(type(event) in RUN_ENDS for event in engine.events[self._seen :])
        self._seen = len(engine.events)

    def _read_mail(self) -> None:
        mail, self.engine.mail = self.engine.mail, []
        for message in mail:
            if isinstance(message, AssignTask):
                fate = self.fates[message.dag, message.run_id](message.task)[message.attempt - 1]
                if fate == "lose" and self.rng.random() < 0.3:
                    fate = "silent"
                self.held.append(Attempt(message, fate, self.engine.now))
            elif isinstance(message, StopAttempt):
                for attempt in self.held:
                    if _place(attempt.work) == _place(message):
                        attempt.told_to_stop |= message.cancel
                if not message.cancel:
                    self.held = [attempt for attempt in self.held if _place(attempt.work) != _place(message)]

    def _act(self, attempt: Attempt) -> None:
        chance = self.rng.random()
        if chance < 0.03 and self._reports:
            self._send(self.rng.choice(self._reports))
        elif chance < 0.1:
            self._send(c.ReportHeartbeat(**_fields(attempt.work), beat=1))
        elif chance < 0.2:
            self._send(c.ReportStarted(**_fields(attempt.work), started_at=self.engine.now))
        else:
            self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        self.held.remove(attempt)
        work = attempt.work
        times: dict[str, Any] = {"started_at": attempt.since, "ended_at": self.engine.now}
        report: c.Report
        if attempt.told_to_stop and self.rng.random() < 0.7:
            report, said = c.ReportCancelled(**_fields(attempt.work), **times), "cancelled"
        elif attempt.fate == "ok":
            output = str(list(range(output_length(attempt.work.task))))
            report, said = c.ReportSuccess(**_fields(attempt.work), **times, output=output), "success"
        else:
            kind: Any = {"fail": "exception", "lose": "worker_lost"}[attempt.fate]
            report, said = c.ReportFailure(**_fields(attempt.work), **times, kind=kind), "failed"
        of_run = self.said[work.dag, work.run_id]
        if (work.task, work.attempt) in of_run:
            of_run[work.task, work.attempt] = said
        self._reports.append(report)
        self._send(report)

    def _send(self, report: c.Report) -> None:
        self.engine.ask(report, allocate=self.rng.random() < 0.7)

    def cancel(self, dag: str, run_id: str) -> None:
        """Ask to cancel the run, which may not be there, or not any more."""
        self._read_mail()
        answer = self.engine.ask(c.CancelRun(actor="user:test", dag=dag, run_id=run_id, reason="enough"))
        if answer is not None and answer.ok:
            live = [attempt.work for attempt in self.held if _place(attempt.work)[:2] == (dag, run_id)]
            self.said[dag, run_id] = {(work.task, work.attempt): "" for work in live}


def _place(message: AssignTask | StopAttempt) -> tuple[str, str, str, int]:
    return (message.dag, message.run_id, message.task, message.attempt)


def _fields(work: AssignTask) -> dict[str, Any]:
    dag, run_id, task, attempt = _place(work)
    worker = work.receiver
    return {
        "actor": f"worker:{worker}",
        "worker": worker,
        "dag": dag,
        "run_id": run_id,
        "task": task,
        "attempt": attempt,
    }


#: How the events that end a task end it.
ENDS: dict[type[e.Event], str] = {
    e.TaskSucceeded: "success",
    e.TaskFailed: "failed",
    e.LeaseExpired: "failed",
    e.TaskSkipped: "skipped",
    e.TaskUpstreamFailed: "upstream_failed",
    e.TaskCancelled: "cancelled",
}
RUN_ENDS: dict[type[e.Event], str] = {
    e.RunSucceeded: "success",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}


@dataclass
class Told:
    """What a journal tells of one run: its end, its tasks' ends, and which of them came before a cancel."""

    end: str = ""
    ends: dict[str, str] = field(default_factory=dict)
    #: The attempt each task ended with.
    attempts: dict[str, int] = field(default_factory=dict)
    before: dict[str, str] | None = None
    expanded: dict[str, int] = field(default_factory=dict)


def told_by(events: Sequence[e.Event]) -> dict[tuple[str, str], Told]:
    """Each run as the events tell it; AssertionError if something ends twice."""
    runs: dict[tuple[str, str], Told] = {}
    for event in events:
        if not isinstance(event, e.RunEvent | e.TaskEvent):
            continue
        told = runs.setdefault((event.dag, event.run_id), Told())
        if isinstance(event, e.RunCancelRequested):
            told.before = dict(told.ends)
        elif isinstance(event, e.TaskExpanded):
            told.expanded[event.task] = event.items
        elif type(event) in RUN_ENDS:
            assert not told.end, f"{event.dag}/{event.run_id} ended twice"
            told.end = RUN_ENDS[type(event)]
        elif type(event) in ENDS and getattr(event, "retry_at", None) is None:
            task: e.TaskEvent = event  # type: ignore[assignment]
            assert task.task not in told.ends, f"{task.dag}/{task.run_id}/{task.task} ended twice"
            told.ends[task.task] = ENDS[type(event)]
            told.attempts[task.task] = task.attempt
    return runs
