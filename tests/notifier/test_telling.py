"""What is told of which event, to whom, in which words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidewheel.core import events as e
from tidewheel.core.workflow import Deadline, Notify, NotifyEvent, Run, Task, Workflow
from tidewheel_services.notifier.telling import Notice, Rules, RunNote, rules_of, take

NOW = 1_767_571_200_000


class Memory:
    """A book that is nowhere else."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], Rules | None] = {}
        self.runs: dict[tuple[str, str], RunNote] = {}
        self.outcomes: dict[str, str] = {}

    def deploy(self, dag: str, version: str, rules: Rules | None) -> None:
        self.versions[dag, version] = rules

    def rules(self, dag: str, version: str) -> Rules | None:
        return self.versions.get((dag, version))

    def begin(self, dag: str, run_id: str, note: RunNote) -> None:
        self.runs[dag, run_id] = note

    def run(self, dag: str, run_id: str) -> RunNote | None:
        return self.runs.get((dag, run_id))

    def changed(self, dag: str, run_id: str) -> None:
        assert (dag, run_id) in self.runs

    def forget(self, dag: str, run_id: str) -> None:
        self.runs.pop((dag, run_id), None)

    def outcome(self, dag: str, before: int) -> str:
        return self.outcomes.get(dag, "")

    def end(self, dag: str, state: str) -> None:
        self.outcomes[dag] = state


class Story:
    """Events, one after the other, and what each led to."""

    def __init__(self, *notify: Notify, deadlines: tuple[Deadline, ...] = (), **more: Any) -> None:
        self.book = Memory()
        self.seq = 0
        flow = Workflow(
            id="d", tasks=(Task(id="a", action=Run(command="x")),), notify=notify, deadlines=deadlines, **more
        )
        self.deploy(flow)

    def deploy(self, flow: Workflow, version: str = "v1") -> None:
        text = msgspec.json.encode(flow).decode()
        assert self.tell(e.DagDeployed(dag="d", at=NOW, version=version, definition=text)) == []

    def tell(self, event: Any) -> list[Notice]:
        self.seq += 1
        recorded = e.Recorded(event=event, seq=self.seq, shard_seq=self.seq, writer=1, cause="timer", chain=b"")
        return take(recorded, self.book)

    def begin(self, run_id: str = "r", version: str = "v1") -> None:
        assert self.tell(e.RunCreated(dag="d", run_id=run_id, at=NOW, version=version, kind="manual")) == []

    def succeed(self, run_id: str = "r") -> list[Notice]:
        return self.tell(e.RunSucceeded(dag="d", run_id=run_id, at=NOW))

    def fail(self, run_id: str = "r") -> list[Notice]:
        return self.tell(e.RunFailed(dag="d", run_id=run_id, at=NOW, reason="a is failed"))


def failed(task: str = "a", attempt: int = 1, **more: Any) -> e.TaskFailed:
    fields = {"worker": "w1", "started_at": NOW, "ended_at": NOW, "kind": "exit_code", "message": "boom", **more}
    return e.TaskFailed(**{"dag": "d", "run_id": "r", "task": task, "attempt": attempt, "at": NOW, **fields})


def on(*events: NotifyEvent, to: str = "ops") -> Notify:
    return Notify(events=events, to=(to,))


def test_a_failed_run_tells_what_failed_where_and_what_it_said() -> None:
    story = Story(on("run_failed"), owner="data-platform")
    story.begin()
    assert story.tell(failed(attempt=3, exit_code=75, message="psql: no route\nto host")) == []
    (notice,) = story.fail()
    assert (notice.id, notice.target, notice.event) == (f"d/r/{story.seq}", "ops", "run_failed")
    assert (notice.told.kind, notice.told.title) == ("failure", "d failed")
    assert notice.told.body.splitlines() == [
        "Run r of d, 2026-01-05T00:00:00Z",
        "A is failed.",
        "",
        "a, attempt 3 on worker w1: exit_code 75",
        "    psql: no route",
        "    to host",
        "",
        "Owner: data-platform",
    ]


def test_a_task_is_told_of_when_it_failed_for_good_and_when_it_is_tried_again() -> None:
    story = Story(on("task_failed", to="pager"), on("task_retrying", to="chat"))
    story.begin()
    (again,) = story.tell(failed(retry_at=NOW + 10_000))
    assert (again.target, again.told.kind, again.told.title) == ("chat", "warning", "d: a is tried again")
    assert again.told.body.endswith("The next attempt begins at 2026-01-05T00:00:10Z.")
    lost = e.LeaseExpired(dag="d", run_id="r", task="a", attempt=2, at=NOW, worker="w1", message="silent")
    (gone,) = story.tell(lost)
    assert (gone.target, gone.told.title) == ("pager", "d: a failed")
    assert "a, attempt 2 on worker w1: lease_expired" in gone.told.body


def test_of_many_instances_one_retry_is_told_and_the_end_of_their_task() -> None:
    story = Story(on("task_failed", "task_retrying", "run_failed"))
    story.begin()
    told = [story.tell(failed(f"a[{n}]", retry_at=NOW + 1)) for n in range(50)]
    assert [len(one) for one in told] == [1] + [0] * 49
    assert all(story.tell(failed(f"a[{n}]", 2)) == [] for n in range(50))
    (ended,) = story.tell(failed("a", 0, worker="", kind="instances", message="50 of 50 instances failed"))
    assert "a: instances" in ended.told.body
    (notice,) = story.fail()
    assert "a[0], attempt 2" in notice.told.body
    assert "46 more tasks failed." in notice.told.body


def test_the_first_success_after_a_failure_and_no_other() -> None:
    story = Story(on("first_success_after_failure"))
    ends = []
    for number, end in enumerate([story.succeed, story.fail, story.fail, story.succeed, story.succeed]):
        story.begin(f"r{number}")
        ends.append([notice.told.title for notice in end(f"r{number}")])
    assert ends == [[], [], [], ["d succeeded again"], []]


def test_a_cancelled_run_is_no_failure_and_no_success() -> None:
    story = Story(on("run_failed", "run_succeeded", "first_success_after_failure"))
    story.begin("r1")
    story.fail("r1")
    story.begin("r2")
    assert story.tell(e.RunCancelled(dag="d", run_id="r2", at=NOW)) == []
    story.begin("r3")
    (notice,) = story.succeed("r3")
    assert notice.event == "first_success_after_failure"
    assert not story.book.runs


def test_one_event_is_told_to_each_target_once() -> None:
    both = Notify(events=("run_succeeded", "first_success_after_failure"), to=("ops", "chat"))
    story = Story(both, on("run_succeeded"), on("run_failed"))
    story.begin("r1")
    story.fail("r1")
    story.begin("r2")
    assert [notice.target for notice in story.succeed("r2")] == ["ops", "chat"]


@pytest.mark.parametrize(
    ("before_ms", "targets", "title"),
    [(0, ["own", "ops"], "deadline missed"), (600_000, ["own"], "a deadline is near")],
)
def test_a_deadline_tells_its_own_target_and_those_who_listen(before_ms: int, targets: list[str], title: str) -> None:
    deadline = Deadline(within_ms=1, action="alert", notify="own", before_ms=before_ms)
    story = Story(on("deadline_missed"), deadlines=(deadline,))
    story.begin()
    missed = e.DeadlineMissed(
        dag="d",
        run_id="r",
        at=NOW,
        deadline=0,
        counted_from="scheduled",
        within_ms=1,
        due_at=NOW,
        action="alert",
        reason="deadline missed: the run had not ended 1ms after its slot",
        before_ms=before_ms,
    )
    told = story.tell(missed)
    assert [notice.target for notice in told] == targets
    assert told[0].told.title == f"d: {title}"
    assert "1ms after its slot." in told[0].told.body


def test_the_version_of_the_run_counts() -> None:
    story = Story(on("run_failed"))
    story.begin()
    story.deploy(Workflow(id="d", tasks=(Task(id="a", action=Run(command="x")),)), version="v2")
    story.begin("r2", version="v2")
    assert len(story.fail()) == 1
    assert story.fail("r2") == []


def test_what_wants_nothing_told_is_not_remembered() -> None:
    story = Story()
    story.begin()
    assert story.tell(failed()) == [] == story.fail()
    assert not story.book.runs
    assert rules_of("no json") is None
    assert rules_of('{"id": "d", "notify": [{"events": ["news"], "to": ["x"]}]}') is None
