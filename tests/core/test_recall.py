"""A run that is not kept any more is recalled by what it came to, and by nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.mapped import CEL, WHERE
from tests.core.scenes import NOW, definition, task, workflow
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.digests import digest_in
from tidewheel.core.ended import packed, unpacked
from tidewheel.core.recall import CannotRecall, Recalled, recall
from tidewheel.core.state import Dag
from tidewheel.core.workflow import Workflow
from tidewheel.testing.playbook import Outcome, given


class Story:
    """What is done to one DAG, and its journal."""

    def __init__(self, of: Workflow) -> None:
        self.events: list[e.Event] = []
        self.sources: dict[str, str] = {}
        self.state = Dag(dag="d")
        self.deploy(of)

    def deploy(self, of: Workflow, version: str = "v1") -> None:
        """The definition becomes current."""
        self.sources[version] = definition(of)
        self.do(c.DeployDag(dag="d", version=version, definition=definition(of)))

    def do(self, command: c.Command) -> Outcome:
        """Somebody asks, and what is decided happens."""
        outcome = given(self.state, rules=CEL).when(command, at=NOW)
        self.events += outcome.decision.events
        self.state = outcome.decision.state
        return outcome

    def run(self, run_id: str, *ends: str) -> None:
        """A run of which the tasks end as they are said to, one after the other."""
        self.do(c.StartRun(dag="d", run_id=run_id))
        for end in ends:
            self.end(run_id, *end.split())

    def end(self, run_id: str, name: str, how: str, attempt: str = "1") -> None:
        """A task ends."""
        where: dict[str, Any] = {"dag": "d", "run_id": run_id, "task": name, "attempt": int(attempt)}
        self.do(c.GrantSlot(**where, pool="default", worker="w", mail_partition=0))
        report: dict[str, Any] = {**where, "worker": "w", "started_at": NOW, "ended_at": NOW}
        if how == "success":
            self.do(c.ReportSuccess(**report, output=json.dumps({"of": name})))
        else:
            self.do(c.ReportFailure(**report, kind="exception", message="no"))

    def recalled(self, run_id: str = "r") -> Recalled:
        """What the journal says of a run."""
        events = [event for event in self.events if isinstance(event, e.RunEvent) and event.run_id == run_id]
        return recall("d", events, self.sources.__getitem__)


def clear(*tasks: str, said: Recalled | None = None, **more: Any) -> c.ClearTasks:
    told = {} if said is None else {"recalled": said.run, "definition": said.definition}
    return c.ClearTasks(**WHERE, tasks=json.dumps(tasks), actor="user:ann", **told, **more)


def failed(keep_runs: int = 0) -> Story:
    """``a`` succeeded and ``b`` failed."""
    story = Story(workflow(task("a"), task("b", "a"), keep_runs=keep_runs))
    story.run("r", "a success", "b failed")
    return story


def test_a_run_that_is_not_kept_must_be_told_and_then_goes_on() -> None:
    story = failed()
    assert story.state.kept == ()
    outcome = story.do(clear("b"))
    outcome.then().rejected(
        "must be recalled by what it came to (its DAG keeps the last 0 ended runs, up to 1 MiB of them)"
    )
    assert outcome.decision.answer is not None and outcome.decision.answer.code == "not_kept"
    said = story.recalled()
    reopened = e.RunReopened(
        dag="d", run_id="r", at=NOW, actor="user:ann", version="v1", inputs="{}", recalled=said.run
    )
    story.do(clear("b", said=said)).then(reopened, e.TasksCleared, e.RunStarted, e.TaskQueued)
    story.end("r", "b", "success", "2")
    assert isinstance(story.events[-1], e.RunSucceeded)


@pytest.mark.parametrize("latest", [False, True])
def test_it_goes_on_as_if_it_had_been_kept(latest: bool) -> None:
    runs = []
    for keep_runs in (0, 20):
        story = failed(keep_runs)
        story.deploy(workflow(task("a"), task("b", "a"), task("x", "a"), keep_runs=keep_runs), "v2")
        outcome = story.do(clear("b", said=story.recalled() if keep_runs == 0 else None, latest=latest))
        assert outcome.decision.answer is not None and outcome.decision.answer.ok
        runs.append((story.state.runs, story.state.runs_of, set(story.state.definitions)))
    kept, recalled = runs[1], runs[0]
    assert recalled == kept if latest else recalled[0]["r"].tasks == kept[0]["r"].tasks
    assert recalled[2] == ({"v2"} if latest else {"v1", "v2"})


def test_a_definition_that_was_forgotten_comes_back_with_its_run_and_goes_with_it() -> None:
    story = failed()
    story.deploy(workflow(task("other"), keep_runs=0), "v2")
    assert set(story.state.definitions) == {"v2"}
    reopened = story.do(clear("b", said=story.recalled())).decision.events[0]
    assert isinstance(reopened, e.RunReopened) and reopened.definition == story.sources["v1"]
    assert set(story.state.definitions) == {"v1", "v2"}
    story.end("r", "b", "success", "2")
    assert set(story.state.definitions) == {"v2"}


def test_a_preview_says_the_same_and_changes_nothing() -> None:
    story = failed()
    story.deploy(workflow(task("other"), keep_runs=0), "v2")
    before = story.state
    answer = story.do(clear("b", said=story.recalled(), preview=True)).then().decision.answer
    assert answer is not None and json.loads(answer.details)["tasks"] == ["b"]
    assert story.state == before


def test_a_mark_recalls_as_well() -> None:
    story = failed()
    said = story.recalled()
    mark = c.MarkTask(**WHERE, task="b", state="success", recalled=said.run, definition=said.definition)
    story.do(mark).then(e.RunReopened, e.TaskMarked, e.RunStarted, e.RunSucceeded)
    assert story.recalled() != said, "it came to something else"


def forged(said: Recalled, **more: Any) -> Recalled:
    return Recalled(packed(replace(unpacked(said.run), **more)), said.definition)


def test_what_a_run_did_not_come_to_is_refused_and_changes_nothing() -> None:
    story = failed()
    story.deploy(workflow(task("other"), keep_runs=0), "v2")
    story.run("s", "other failed")
    true = story.recalled()
    wrong = [
        forged(true, inputs='{"forged":1}'),
        forged(true, tasks=unpacked(story.recalled("s").run).tasks),
        forged(story.recalled("s"), run_id="r"),
        story.recalled("s"),
        Recalled(true.run, definition(workflow(task("a"), task("b")))),
        Recalled(true.run, ""),
        Recalled(true.run[:-1], true.definition),
        Recalled(b"", true.definition),
    ]
    for said in wrong:
        before = story.state
        outcome = story.do(clear("b", said=said)).then().rejected("`tidewheel rerun d r` repeats it")
        assert outcome.decision.answer is not None and outcome.decision.answer.code == "conflict"
        assert story.state == before
    assert story.do(clear("b", said=true)).decision.events


def test_of_a_run_that_ended_twice_only_the_last_end_counts() -> None:
    story = failed()
    first = story.recalled()
    story.do(clear("b", said=first))
    story.end("r", "b", "failed", "2")
    story.do(clear("b", said=first)).then().rejected("is not what it came to")
    story.do(clear("b", said=story.recalled())).then(e.RunReopened, e.TasksCleared, e.RunStarted, e.TaskQueued)
    assert story.state.runs["r"].task("b").attempt == 3


def test_what_is_said_of_a_live_or_kept_run_is_not_looked_at() -> None:
    story = failed(keep_runs=1)
    said = forged(story.recalled(), inputs='{"forged":1}')
    reopened = story.do(clear("b", said=said)).decision.events[0]
    assert isinstance(reopened, e.RunReopened) and not reopened.recalled
    story.do(clear("a", said=said)).then(e.TasksCleared, e.TaskQueued)


def test_a_run_of_which_not_even_the_digest_is_left_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.core.digests.RECALLABLE_RUNS", 4)
    monkeypatch.setattr("tidewheel.core.digests.CHUNK_RUNS", 2)
    story = failed()
    for number in range(5):
        assert digest_in(story.state.digests, "r") is not None
        story.run(f"s{number}", "a failed")
    assert len(story.state.digests) == 3
    story.run("s5", "a failed")
    assert digest_in(story.state.digests, "r") is None
    assert all(digest_in(story.state.digests, f"s{number}") is not None for number in range(1, 6))
    story.do(clear("b", said=story.recalled())).then().rejected("has ended too long ago to go on")


def test_a_removed_dag_recalls_nothing() -> None:
    story = failed()
    said = story.recalled()
    story.do(c.RemoveDag(dag="d"))
    story.do(clear("b", said=said)).then().rejected("was removed")


def test_the_digest_of_a_run_is_the_same_for_ever() -> None:
    """Who changes how a run is packed loses all runs that ended before: they can not be recalled any more."""
    digest = digest_in(failed().state.digests, "r")
    assert digest is not None and digest.hex() == "163814aff78561ef52fa911a"


def test_events_that_do_not_follow_one_another_tell_nothing() -> None:
    story = failed()
    events = [event for event in story.events if isinstance(event, e.RunEvent)]
    for part in (events[:-1], events[1:], [*events[:3], *events[4:]], []):
        with pytest.raises(CannotRecall):
            recall("d", part, story.sources.__getitem__)
    with pytest.raises(CannotRecall):
        recall("d", events, {}.__getitem__)


def test_a_run_that_does_not_fit_into_a_record_is_not_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.core.recall.RECALLED_BYTES_MAX", 100)
    with pytest.raises(CannotRecall, match="the limit is 100"):
        failed().recalled()


def test_a_definition_that_is_forgotten_with_its_run_still_says_whose_slots_are_released() -> None:
    below = replace(task("b", "a"), if_="tasks.a.output.n > 1", pool="small")
    story = Story(workflow(task("a"), below, keep_runs=0))
    story.do(c.StartRun(dag="d", run_id="r"))
    mark = c.MarkTask(**WHERE, task="a", state="success", downstream=True)
    story.do(replace(mark, output='{"n":2}')).then(e.TaskMarked, e.TaskQueued)
    story.deploy(workflow(task("other"), keep_runs=0), "v2")
    outcome = story.do(replace(mark, output='{"n":0}'))
    outcome.then(e.TaskMarked, e.TasksCleared, e.TaskSkipped, e.RunSucceeded)
    assert set(story.state.definitions) == {"v2"}
    released = outcome.decision.commands[-1]
    assert isinstance(released, c.ReleaseSlot) and (released.pool, released.task) == ("small", "b")
