"""Random DAGs with random fates, and the workers that bring these about on the bare rules, in random order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, get_args

from msgspec.structs import replace

from tests.runtime.reference_model import expected, output_length
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import AssignTask, StopAttempt
from tidewheel.core.mapping import written_task
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import (
    ApprovalWait,
    Concurrency,
    Input,
    OnTimeout,
    Run,
    SubWorkflow,
    Switch,
    Task,
    TimeWait,
    TriggerRule,
    WaitFor,
    Workflow,
)
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
#: Nobody who answers takes so long.
_ANSWERED_MS = 60_000


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


def waiting_workflow(rng: Random, dag: str, below: Sequence[str]) -> Workflow:
    """One some of whose tasks are not run by workers: they wait for a time or a person, and one of them for runs of a
    DAG ``below`` it. Of a pool it may have a share only."""
    workflow = random_workflow(rng, dag)
    tasks = list(workflow.tasks)
    for number in range(1, len(tasks)):
        if not isinstance(tasks[number].action, Switch) and rng.random() < 0.15:
            tasks[number] = replace(tasks[number], action=_wait(rng))
    asking = rng.randrange(len(tasks))
    if asking and below and not isinstance(tasks[asking].action, Switch):
        action = SubWorkflow(dag=rng.choice(below), inputs={"n": rng.randint(0, 6)})
        tasks[asking] = replace(tasks[asking], action=action)
    share = rng.choice([None, None, 1, 30, 60])
    return replace(workflow, tasks=tuple(tasks), concurrency=replace(workflow.concurrency, max_pool_share=share))


def _wait(rng: Random) -> WaitFor:
    on_timeout: OnTimeout = rng.choice(get_args(OnTimeout))
    if rng.random() < 0.5:
        # Whoever answers does so long before.
        return WaitFor(what=ApprovalWait(), timeout_ms=_ANSWERED_MS, on_timeout=on_timeout)
    after_ms, timeout_ms = rng.choice([0, 1, 500, 20_000]), rng.choice([None, None, 1, 5_000, 20_000])
    return WaitFor(what=TimeWait(after_ms=after_ms), timeout_ms=timeout_ms, on_timeout=on_timeout)


class Luck:
    """How the attempts of a run end, decided when first asked for and the same ever after.

    A task that asks for runs ends each time as the reference says that these do.
    """

    def __init__(self, workflows: Mapping[str, Workflow], dag: str, n: int, lot: str) -> None:
        self.workflow = workflows[dag]
        self.n = n
        self._workflows = workflows
        self._lot = lot
        self._fates: dict[str, list[str]] = {}
        self._tasks = {task.id: task for task in self.workflow.tasks}

    def __call__(self, name: str) -> list[str]:
        """Of a task or an instance."""
        if name not in self._fates:
            self._fates[name] = self._decided(name, self._tasks[written_task(name)])
        return self._fates[name]

    def child(self, name: str, attempt: int) -> Luck:
        """Of the run that this attempt asks for."""
        action = self._tasks[written_task(name)].action
        assert isinstance(action, SubWorkflow)
        return Luck(self._workflows, action.dag, action.inputs["n"], f"{self._lot}/{name}/{attempt}")

    def _decided(self, name: str, task: Task) -> list[str]:
        if not isinstance(task.action, SubWorkflow):
            return [*Random(f"{self._lot}{name}").choices(["ok", "fail", "lose"], [12, 3, 1], k=6), "ok"]
        children = [self.child(name, attempt) for attempt in range(1, task.retry.max + 2)]
        ends = [expected(child.workflow, child.n, child)[0] for child in children]
        return ["ok" if end == "success" else "fail" for end in ends]


@dataclass
class Attempt:
    """A lease that a worker holds."""

    work: AssignTask
    fate: str
    since: int
    told_to_stop: bool = False


@dataclass
class Question:
    """A task that waits for a person."""

    wait: e.TaskDeferred
    fate: str
    since: int


@dataclass
class Crew:
    """Workers that bring the fates of attempts about, one at a time and in random order.

    They report starts or not, renew, fall silent instead of saying that they are lost, stop when they are told to or
    report their result all the same, and now and then repeat a report of long ago. People answer what tasks ask them,
    now and then twice, and to an attempt that is none.
    """

    rng: Random
    #: By DAG and run; those of runs that tasks ask for come with these.
    fates: dict[tuple[str, str], Luck]
    engine: BareEngine = field(init=False)
    held: list[Attempt] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    #: By run: what each attempt (task, number) that was live when it was cancelled was then reported as; "" if it
    #: never was.
    said: dict[tuple[str, str], dict[tuple[str, int], str]] = field(default_factory=lambda: defaultdict(dict))
    #: Runs that have ended.
    ended: int = 0
    #: Slots of the workers together.
    capacity: int = 0

    def __post_init__(self) -> None:
        self.engine = BareEngine(Rules(evaluator=EVALUATOR, step=self.rng.choice([1, 2, 200])), START_MS)
        self._slots = {"w0": self.rng.randint(2, 8), "w1": self.rng.randint(1, 4)}
        self.capacity = sum(self._slots.values())
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
        self._read()
        able: list[Attempt | Question] = [attempt for attempt in self.held if attempt.fate != "silent"]
        able += [question for question in self.questions if question.fate != "lose"]
        if able:
            engine.now += self.rng.randint(0, 20)
            chosen = self.rng.choice(able)
            oldest = min(able, key=lambda one: one.since)
            chosen = oldest if engine.now - oldest.since > _HELD_MS_MAX else chosen
            if isinstance(chosen, Question):
                self._answer(chosen)
            else:
                self._act(chosen)
        else:
            engine.allocate()
            due = engine.next_due()
            assert due is not None, "nothing is left to happen"
            engine.now = max(engine.now, min(due, self._joined + _RENEW_MS))
        if engine.now - self._joined >= _RENEW_MS:
            self._join()
        engine.fire_due()
        self._read()

    def _read(self) -> None:
        """The mail, and what the journal says of runs and of questions to people."""
        seen, self._seen = self._seen, len(self.engine.events)
        fresh = self.engine.events[seen:]
        for event in fresh:
            if isinstance(event, e.RunCreated) and event.parent_dag:
                parent = self.fates[event.parent_dag, event.parent_run_id]
                self.fates[event.dag, event.run_id] = parent.child(event.parent_task, event.parent_attempt or 0)
            elif isinstance(event, e.TaskDeferred) and event.waits_for == "approval":
                fate = self.fates[event.dag, event.run_id](event.task)[0]
                self.questions.append(Question(event, fate, self.engine.now))
            self.ended += type(event) in RUN_ENDS
        self._read_mail()
        for event in fresh:
            if isinstance(event, e.RunCancelRequested):
                place = (event.dag, event.run_id)
                live = [attempt.work for attempt in self.held if _place(attempt.work)[:2] == place]
                self.said[place] = {(work.task, work.attempt): "" for work in live}

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

    def _answer(self, question: Question) -> None:
        """Say yes or no; an answer to the next attempt, or one that comes again, is to change nothing."""
        wait, rng = question.wait, self.rng
        place: dict[str, Any] = {"actor": "user:ann", "dag": wait.dag, "run_id": wait.run_id, "task": wait.task}
        answer = c.DecideApproval(**place, attempt=rng.choice([0, wait.attempt]), approve=question.fate == "ok")
        if rng.random() < 0.1:
            self.engine.ask(replace(answer, attempt=wait.attempt + 1, approve=not answer.approve))
        self.questions.remove(question)
        self.engine.ask(answer)
        if rng.random() < 0.1:
            self.engine.ask(replace(answer, attempt=wait.attempt, approve=not answer.approve))

    def _send(self, report: c.Report) -> None:
        self.engine.ask(report, allocate=self.rng.random() < 0.7)

    def cancel(self, dag: str, run_id: str) -> None:
        """Ask to cancel the run, which may not be there, or not any more."""
        self._read()
        self.engine.ask(c.CancelRun(actor="user:test", dag=dag, run_id=run_id, reason="enough"))
        self._read()


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
