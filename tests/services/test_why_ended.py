"""Why a run or a task of it failed: on rows as the read model has them, and the commands that are told then."""

from __future__ import annotations

from typing import Any

from tests.services.test_why import row, run
from tidewheel_projections.views import TaskDetail
from tidewheel_projections.waiting import LostTasks
from tidewheel_services.cli.mending import steps
from tidewheel_services.why.ended import why_ended, why_failed
from tidewheel_services.why.reason import Reason
from tidewheel_services.why.written import written

FLOW = written(
    {
        "tasks": [
            {"id": "list"},
            {"id": "load", "needs": ["list"], "for_each": "${{ x }}"},
            {"id": "join", "needs": ["load"]},
            {"id": "tell", "needs": ["join"]},
            {"id": "other"},
        ]
    }
)


def lost(task: str, state: str, count: int = 1, **more: Any) -> LostTasks:
    ordinal = ("list", "load", "join", "tell", "other").index(task.partition("[")[0])
    fields = {"ordinal": ordinal, "instances": "[" in task, "state": state, "count": count, "tasks": [task]}
    found: LostTasks = row(LostTasks, **fields, **more)
    return found


def task(name: str, ordinal: int, state: str, **more: Any) -> TaskDetail:
    found: TaskDetail = row(TaskDetail, task=name, ordinal=ordinal, state=state, **more)
    return found


def said(reasons: Any) -> list[tuple[str, tuple[str, ...], int, str]]:
    return [(reason.code, reason.tasks, reason.count, reason.message) for reason in reasons]


LOST = [
    lost("load", "failed", reason="3 of 9 instances failed"),
    lost("load[1]", "failed", 2, attempt=3, reason="exit status 3: no such table"),
    lost("load[4]", "failed", attempt=1, reason="timed out"),
    lost("join", "upstream_failed"),
    lost("tell", "upstream_failed"),
    lost("other", "failed", attempt=1),
]


def test_a_run_that_failed_names_each_kind_of_failure_and_what_did_not_run() -> None:
    failed = run(state="failed", reason="tell is upstream_failed")
    assert said(why_failed(failed, LOST)) == [
        ("ended", (), 0, "it has ended as failed: tell is upstream_failed"),
        ("failed", ("load",), 1, "failed: 3 of 9 instances failed"),
        ("failed", ("load[1]",), 2, "failed after 3 attempts: exit status 3: no such table"),
        ("failed", ("load[4]",), 1, "failed after 1 attempt: timed out"),
        ("failed", ("other",), 1, "failed after 1 attempt"),
        ("ended", ("join", "tell"), 2, "did not run, since something upstream failed (upstream_failed)"),
    ]


def test_a_run_that_failed_without_a_failed_task_says_why_itself() -> None:
    failed = run(state="failed", reason="ran longer than its deadline")
    assert said(why_failed(failed, [])) == [("ended", (), 0, "it has ended as failed: ran longer than its deadline")]


def test_a_task_that_did_not_run_names_what_failed_upstream_and_nothing_else() -> None:
    reasons = list(why_ended(task("tell", 3, "upstream_failed", reason="join is upstream_failed"), LOST, FLOW))
    assert reasons[0].message == "it has ended as upstream_failed: join is upstream_failed"
    assert [reason.tasks[0] for reason in reasons] == ["tell", "load", "load[1]", "load[4]"]


def test_a_task_that_failed_with_its_instances_and_an_instance_alone() -> None:
    reasons = why_ended(task("load", 1, "failed", reason="3 of 9 instances failed"), LOST, FLOW)
    assert [reason.tasks[0] for reason in reasons] == ["load", "load[1]", "load[4]"]
    alone = task("load[4]", 1, "failed", instance=4, attempt=1, reason="KeyError: 'x'\n\nTraceback of many lines")
    assert said(why_ended(alone, LOST, FLOW)) == [
        ("failed", ("load[4]",), 1, "failed after 1 attempt: KeyError: 'x'"),
    ]


def test_a_task_that_ended_otherwise() -> None:
    (reason,) = why_ended(task("other", 4, "skipped", reason="if is false"), LOST, FLOW)
    assert (reason.code, reason.message) == ("ended", "it has ended as skipped: if is false")


def answer(state: str, *reasons: Reason) -> dict[str, Any]:
    told = [{"code": reason.code, "tasks": list(reason.tasks)} for reason in reasons]
    return {"dag": "d", "run_id": "of friday's", "state": state, "reasons": told}


def test_the_commands_stand_last_and_are_quoted_for_a_shell() -> None:
    found = answer("failed", *why_failed(run(state="failed"), LOST))
    run_id = "'of friday'\"'\"'s'"
    assert [line.partition(":  ")[2].strip() for line in steps(found)] == [
        "",
        f"tidewheel logs d {run_id} 'load[1]'",
        f"tidewheel clear d {run_id} --only-failed",
        f"tidewheel clear d {run_id} --only-failed --version latest",
        f"tidewheel rerun d {run_id}",
    ]


def test_of_a_task_and_of_a_run_that_goes_on() -> None:
    found = answer("running", *why_ended(task("other", 4, "failed"), LOST, FLOW))
    verbs = [line.partition("tidewheel ")[2].split()[0] for line in list(steps(found, "other"))[1:]]
    assert verbs == ["logs", "clear", "mark"], "a run that is live keeps its version"
    instance = answer("failed", *why_ended(task("load[4]", 1, "failed", instance=4), LOST, FLOW))
    assert not any("mark" in line for line in steps(instance, "load[4]")), "its task has ended"
    asked = answer("failed", *why_ended(task("tell", 3, "upstream_failed"), LOST, FLOW))
    assert any("clear" in line and "--only-failed" in line for line in steps(asked, "tell"))


def test_what_did_not_fail_needs_nothing() -> None:
    assert list(steps(answer("success"))) == []
    assert list(steps(answer("failed", *why_failed(run(state="failed"), [])))) == []
