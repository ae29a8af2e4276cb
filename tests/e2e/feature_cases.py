"""What each example of `examples/features` comes to: one case a file, which does what its head says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.playing import Play, Run, Site
from tests.e2e.running import eventually
from tests.notifier.receiver import Receiver
from tests.worker.cluster import Cluster


@dataclass(frozen=True)
class Stage:
    """The site, and what stands outside of it."""

    site: Site
    chat: Receiver
    oncall: Receiver
    cluster: Cluster


Case = Callable[[Play, Stage], None]
CASES: dict[str, Case] = {}


def case(*names: str) -> Callable[[Case], Case]:
    """Of the files of these names."""

    def keep(function: Case) -> Case:
        CASES.update(dict.fromkeys(names, function))
        return function

    return keep


def success(play: Play) -> Run:
    run = play.run()
    assert run.state == "success", run.shown
    return run


# --- tasks ------------------------------------------------------------------------------------------------------------


@case("hello.yaml")
def hello(play: Play, _: Stage) -> None:
    planned(play)
    success(play)
    play.do(said="hi\n")


@case("shell.yaml")
def shell(play: Play, _: Stage) -> None:
    run = success(play)
    assert run.output("greet") == {"letters": 16, "where": "the task"}
    play.do(said="16 letters, said attempt 1 of read in shell\n")


@case("python_task.yaml")
def python_task(play: Play, _: Stage) -> None:
    run = success(play)
    counted = run.output("count")
    assert counted["key"] == f"python_task/{play.run_id}/count"
    assert (counted["words"], counted["first"], counted["attempt"]) == (3, ["three", "short"], 1)
    assert run.output("shout") == "THREE SHORT WORDS!"
    play.do(said="THREE SHORT WORDS!\n")


@case("http.yaml")
def http(play: Play, stage: Stage) -> None:
    run = success(play)
    assert run.output("ask")["json"]["dag"] == "hello"
    assert (run.output("start")["status"], run.output("again")["status"]) == (201, 200)
    assert stage.site.ended("hello", f"asked-by-{play.run_id}").state == "success"
    play.do(said="missing")


@case("inputs.yaml")
def inputs(play: Play, stage: Stage) -> None:
    run = success(play)
    assert run.shown["run"]["inputs"] == {
        "table": "orders", "mode": "append", "limit": 1000, "ratio": 0.8, "full": False, "day": "2026-01-31",
        "since": "2026-01-31T06:00:00+01:00", "columns": ["id", "amount"], "labels": {"team": "data"}, "note": None,
        "asked_by": "manual",
    }  # fmt: skip
    refused = play.do(exit_code=1).output
    assert all(name in refused for name in ("table", "mode", "limit"))
    assert len(stage.site.document("runs", "inputs")) == 1


@case("expressions.yaml")
def expressions(play: Play, _: Stage) -> None:
    success(play)
    (said,) = re.findall(r'You read: "(.*)"', play.head)
    play.do(said=f"{said}\n")


@case("anchors.yaml")
def anchors(play: Play, stage: Stage) -> None:
    assert success(play).ends("load") == ["exit_code", "success"]
    definition = stage.site.get("anchors", "versions", stage.site.get("anchors")["version"])["definition"]
    assert [(task["timeout_ms"], task["retry"]["max"]) for task in definition["tasks"]] == [(60_000, 1), (300_000, 1)]


@case("defaults.yaml")
def defaults(play: Play, _: Stage) -> None:
    run = play.run()
    assert run.state == "failed"
    assert run.ends("often") == ["exit_code", "exit_code", "success"]
    assert run.ends("once") == ["exit_code"]
    assert {one["pool"] for one in run.attempts("often") + run.attempts("once")} == {"example_defaults"}
    play.do(said="often")


@case("secrets.yaml")
def secrets(play: Play, _: Stage) -> None:
    success(play)
    play.do(said="connecting with ***\n")


# --- the way of a run -------------------------------------------------------------------------------------------------


@case("trigger_rules.yaml")
def trigger_rules(play: Play, _: Stage) -> None:
    shown = dict(re.findall(r"^  - \{id: (\w+),.*# (\w+)$", play.file.read_text(), re.MULTILINE))
    run = play.run()
    assert len(shown) == 22 and run.states == shown
    assert run.state == "failed"
    (always,), (slow,) = run.attempts("always"), run.attempts("slow")
    assert always["started_at"] < slow["ended_at"]
    play.do(said="upstream_failed")


@case("condition.yaml")
def condition(play: Play, _: Stage) -> None:
    assert set(success(play).states.values()) == {"success"}
    assert success(play).states == {"count": "success", "load": "skipped", "index": "skipped", "tell": "success"}


@case("switch.yaml")
def switch(play: Play, _: Stage) -> None:
    for branch, then in ((0, ["quarantine"]), (1, ["warn", "publish"]), (2, ["publish"])):
        run = success(play)
        assert run.output("route") == {"branch": branch, "then": then}
        assert {task for task, state in run.states.items() if state == "success"} == {"route", "tell", *then}


@case("for_each.yaml")
def for_each(play: Play, _: Stage) -> None:
    run = success(play)
    loaded = [{"file": "eu", "rows": 10}, {"file": "us", "rows": 20}, {"file": "asia", "rows": 30}]
    assert run.output("load") == run.output("sum") == loaded
    assert run.at_once("load") <= 2
    assert run.output("check") == ["us", "asia"]
    assert run.states["warm_up[1]"] == "success"
    assert run.output("nothing") == []
    play.do(said="60 rows\n")


@case("for_each_limits.yaml")
def for_each_limits(play: Play, _: Stage) -> None:
    run = success(play)
    assert [run.states[f"patient[{index}]"] for index in range(4)] == ["success", "failed", "success", "success"]
    assert [run.states[f"strict[{index}]"] for index in range(4)] == ["success", "failed", "cancelled", "cancelled"]
    assert [run.states[task] for task in ("patient", "strict", "bounded")] == ["failed"] * 3
    assert not run.attempts("bounded[0]")
    play.do(said="patient")


@case("other_dags.yaml")
def other_dags(play: Play, _: Stage) -> None:
    run = success(play)
    asked = {(child["dag"], child["kind"]) for child in run.shown["children"]}
    assert asked == {("other_dags_report", "workflow"), ("hello", "triggered")}
    published = [one["outputs"]["publish"]["address"] for one in run.output("reports")]
    assert published == ["reports/eu.html", "reports/us.html"]
    assert run.output("greet")["dag"] == "hello"
    play.do(said="asked for other_dags_report")


@case("other_dags_report.yaml")
def other_dags_report(play: Play, _: Stage) -> None:
    assert success(play).output("publish") == {"address": "reports/eu.html"}


# --- waits ------------------------------------------------------------------------------------------------------------


@case("wait_time.yaml")
def wait_time(play: Play, _: Stage) -> None:
    run = play.run()
    assert (run.state, run.states["too_long"], run.states["too_late"]) == ("failed", "skipped", "failed")
    assert (run.states["after"], run.states["never"]) == ("success", "upstream_failed")
    assert {run.states[task] for task in ("settle", "opened", "computed")} == {"success"}
    play.do(said="too_late")


@case("wait_approval.yaml")
def wait_approval(play: Play, _: Stage) -> None:
    play.start()
    assert play.do(said="approve").exit_code == 0
    play.do()
    assert play.now().states["object"] == "skipped"
    play.do(said="success")
    play.do(said="approved by user:ann\n")


@case("wait_run.yaml")
def wait_run(play: Play, _: Stage) -> None:
    play.do()
    play.start()
    play.do(said="by_id")
    play.do()
    run = play.now()
    assert run.output("by_slot") == {"dag": "hello", "run_id": "scheduled__2026-01-30T06:00:00Z", "state": "success"}
    assert run.output("by_id") == {"dag": "hello", "run_id": "awaited", "state": "success"}


@case("wait_http.yaml")
def wait_http(play: Play, _: Stage) -> None:
    play.start()
    play.do(said="ready")
    play.do()
    assert play.now().output("ready")["json"]["run_id"] == "polled"


@case("wait_kafka.yaml")
def wait_kafka(play: Play, _: Stage) -> None:
    play.start()
    play.do()
    play.do()
    assert play.now().output("orders_are_in")["value"] == {"day": "2026-01-31", "rows": 7}
    play.do(said="7 rows\n")


# --- what starts runs -------------------------------------------------------------------------------------------------


@case("kafka_trigger.yaml")
def kafka_trigger(play: Play, stage: Stage) -> None:
    for _ in range(3):
        play.do()
    run = stage.site.ended("kafka_trigger", "trigger__landed:f1.csv")
    assert run.shown["run"]["inputs"] == {"file": "f1.csv"}
    play.do(said="trigger__landed:f1.csv")
    assert len(stage.site.document("runs", "kafka_trigger")) == 1


@case("schedule_cron.yaml", "schedule_every.yaml", "clock_changes.yaml", "catchup_none.yaml", "catchup_latest.yaml",
      "catchup_all.yaml")  # fmt: skip
def planned_only(play: Play, _: Stage) -> None:
    while play.todo:
        planned(play)


def planned(play: Play) -> None:
    """What `plan` prints stands in the head, line by line; of spread starts only the slots."""
    shown = [line.strip() for line in play.head.splitlines()]
    promised = [line for line in shown if line.startswith("Unpaused ")]
    _, *printed = [line.strip() for line in play.do().output.splitlines()]
    if promised:
        assert any(line.startswith(promised[0]) for line in printed) or promised[0] in printed[-1], printed
        return
    slots = [line for line in printed if re.match(r"\d{4}-", line)]
    assert slots
    for line in slots:
        assert line in shown or re.split(r"  +\S+$", line)[0] in shown, f"{line} is not in the head of {play.file.name}"


@case("backfill.yaml")
def backfill(play: Play, stage: Stage) -> None:
    play.do(said="3 would run")
    play.do()
    play.do(said="scheduled__2026-01-31T11:00:00Z")
    run = stage.site.ended("backfill", "scheduled__2026-01-31T11:00:00Z")
    assert (run.shown["run"]["kind"], run.states) == ("backfill", {"load": "success", "publish": "skipped"})
    logged = "from 2026-01-30T11:00:00Z to 2026-01-31T11:00:00Z\n"
    eventually(lambda: stage.site.call("logs", "backfill", "scheduled__2026-01-31T11:00:00Z", "load").output == logged)


def scheduled(stage: Stage, dag: str) -> list[Mapping[str, Any]]:
    return [run for run in stage.site.document("runs", dag) if run["kind"] == "scheduled"]


def states(stage: Stage, dag: str) -> list[str]:
    """Of its runs, the earliest slot first."""
    return [run["state"] for run in reversed(scheduled(stage, dag))]


def quiet(stage: Stage, play: Play) -> None:
    """What has been seen need not go on beside the other examples."""
    assert stage.site.call("pause", play.file.stem).exit_code == 0


@case("overlap_queue.yaml")
def overlap_queue(play: Play, stage: Stage) -> None:
    def live() -> list[str]:
        return [run["state"] for run in stage.site.document("runs", "overlap_queue", "--limit", "1000")]

    eventually(lambda: {"success", "running", "queued"} <= set(live()), 60)
    assert live().count("running") <= 1
    play.do(said="queued")
    quiet(stage, play)


@case("overlap_skip.yaml")
def overlap_skip(play: Play, stage: Stage) -> None:
    def skipped() -> Any:
        return [e for e in stage.site.document("events", "overlap_skip") if e["type"] == "SlotsSkipped"]

    eventually(skipped, 60)
    eventually(lambda: len(states(stage, "overlap_skip")) >= 2, 60)
    assert "queued" not in states(stage, "overlap_skip")
    play.do(said="overlap_skip")
    quiet(stage, play)


@case("overlap_allow.yaml")
def overlap_allow(play: Play, stage: Stage) -> None:
    eventually(lambda: states(stage, "overlap_allow").count("running") >= 2, 60)
    play.do(said="running")
    quiet(stage, play)


@case("overlap_cancel_running.yaml")
def overlap_cancel_running(play: Play, stage: Stage) -> None:
    eventually(lambda: states(stage, "overlap_cancel_running").count("cancelled") >= 2, 60)
    play.do(said="cancelled")
    quiet(stage, play)
