"""More cases of `examples/features`: what fails and is mended, who goes first, and what runs elsewhere."""

from __future__ import annotations

from tests.e2e.feature_cases import Stage, case, success
from tests.e2e.playing import Play
from tests.e2e.running import eventually


@case("retries.yaml")
def retries(play: Play, _: Stage) -> None:
    run = success(play)
    for task in ("short", "fixed", "linear", "exponential"):
        assert run.ends(task) == ["exit_code", "exit_code", "success"], task
    play.do(said="exponential")


@case("retry_only_on.yaml")
def retry_only_on(play: Play, _: Stage) -> None:
    run = play.run()
    assert run.state == "failed"
    assert run.ends("busy") == ["exit_code", "success"]
    assert run.ends("hangs") == ["timeout", "success"]
    assert run.ends("wrong") == ["exit_code"]
    assert run.ends("missing") == ["http_status", "http_status"]
    play.do(said="wrong")


@case("timeouts.yaml")
def timeouts(play: Play, _: Stage) -> None:
    run = play.run()
    assert run.state == "failed"
    assert run.ends("one") == ["timeout"]
    assert set(run.ends("all")) == {"exit_code"} and 2 <= len(run.attempts("all")) < 10
    assert run.states == {"one": "failed", "all": "failed", "queued": "failed", "silent": "success"}
    assert run.ends("queued") == ["queue_timeout"]
    play.do(said="queued")


@case("checkpoints.yaml")
def checkpoints(play: Play, _: Stage) -> None:
    run = success(play)
    assert run.output("function") == run.output("command") == {"began": 5, "pages": 10}
    assert (run.ends("function"), run.ends("command")) == (["exception", "success"], ["exit_code", "success"])
    play.do(said="function")


@case("repair.yaml")
def repair(play: Play, _: Stage) -> None:
    assert play.run().states == {"load": "failed", "check": "upstream_failed", "publish": "upstream_failed"}
    play.do()
    # What is read may still be how the run ended before.
    cleared = {"load": "success", "check": "failed", "publish": "upstream_failed"}
    eventually(lambda: play.now().states == cleared, 60)
    play.do()
    eventually(lambda: play.now().state == "success", 60)
    play.do(said="17 rows\n")
    assert "failed" in play.do(exit_code=1).output


@case("deadlines.yaml")
def deadlines(play: Play, stage: Stage) -> None:
    run = play.run()
    assert (run.state, run.states) == ("failed", {"hang": "cancelled", "after": "cancelled"})
    assert [one["action"] for one in run.shown["run"]["deadlines_missed"]] == ["alert", "alert", "fail"]
    play.do(said="the run had not ended 1s after its")
    eventually(lambda: sum("deadlines" in one["title"] for one in stage.chat.taken) == 2, 60)


@case("notify.yaml")
def notify(play: Play, stage: Stage) -> None:
    assert play.run().state == "failed"
    assert success(play).state == "success"

    def told(name: str) -> list[str]:
        return sorted(one["title"] for one in getattr(stage, name).taken if "notify" in one["title"])

    # Each target is told of an event once, also if two entries name it.
    chat = ["notify failed", "notify succeeded again"]
    oncall = [*chat, "notify: load failed", "notify: load is tried again"]
    eventually(lambda: (told("chat"), told("oncall")) == (chat, oncall), 60, f"{chat} and {oncall}")


@case("concurrency.yaml")
def concurrency(play: Play, _: Stage) -> None:
    first, second = success(play), success(play)
    assert first.shown["run"]["ended_at"] <= second.shown["run"]["started_at"]
    assert (first.at_once("load"), second.at_once("load")) == (2, 2)
    play.do(said="load[3]")


@case("pool_nightly.yaml")
def pool_nightly(play: Play, _: Stage) -> None:
    """Beside pool_urgent.yaml, whose case is this one too."""
    play.do()
    urgent = Play(play.site, play.file.with_name("pool_urgent.yaml"))
    play.start()
    quick_and_wide = success(urgent)  # while the other one is at work, however slow the machine
    play.do(said="used  waiting  at most")
    nightly = play.now()
    assert nightly.state == "success" and nightly.at_once("load") == 1
    (wide,), (quick,) = quick_and_wide.attempts("wide"), quick_and_wide.attempts("quick")
    loads = sorted((one["started_at"], one["ended_at"]) for one in nightly.attempts("load"))
    assert len(loads) == 6 and quick["ended_at"] < loads[-1][0]
    assert wide["ended_at"] <= loads[-1][0]
    assert not [one for one in loads if one[0] < wide["ended_at"] and wide["started_at"] < one[1]]
    play.do(said="load[5]")
    urgent.do(said="wide")


@case("pool_urgent.yaml")
def pool_urgent(play: Play, _: Stage) -> None:
    assert set(success(play).states.values()) == {"success"}


@case("container.yaml")
def container(play: Play, _: Stage) -> None:
    """By a stand-in for the engine (`tests/worker/detached_engine.py`)."""
    run = success(play)
    assert run.output("count") == {"day": "2026-01-31"}
    logged = play.site.call("logs", "container", play.run_id, "words")
    assert logged.output == "the day is 2026-01-31\n"
    play.do(said="local")


@case("kubernetes.yaml")
def kubernetes(play: Play, stage: Stage) -> None:
    """By an API server of the tests (`tests/worker/cluster.py`), in which no container runs."""
    assert success(play).output("train") == {"rows": 3}
    play.do(said="hello\nworld\n")
    assert stage.cluster.created == stage.cluster.deleted and len(stage.cluster.created) == 1


@case("celery.yaml")
def celery(play: Play, _: Stage) -> None:
    assert success(play).output("add") == {"sum": 42}
    play.do(said="add")


@case("python_dag.py")
def python_dag(play: Play, _: Stage) -> None:
    play.do(said="1 file good")
    run = success(play)
    assert run.states == {"extract": "success", "many": "skipped", "tell": "success"}
    play.do(said="6 rows of 2026-01-31\n")


@case("python_loop.py")
def python_loop(play: Play, stage: Stage) -> None:
    play.do(said="1 file good")
    play.do(said="success")
    play.do(said="success")
    schedules = [stage.site.get(f"python_loop_{region}")["schedule"] for region in ("eu", "us")]
    assert [one["timezone"] for one in schedules] == ["Europe/Berlin", "America/Chicago"]


@case("python_flow.py")
def python_flow(play: Play, _: Stage) -> None:
    run = success(play)
    assert run.output("load") == ["0.CSV", "1.CSV"]
    assert (run.states["nothing"], run.states["report"], run.states["greet"]) == ("skipped", "success", "success")
    run = success(play)
    assert {task for task, state in run.states.items() if state == "success"} == {"list_files", "route", "nothing"}
    play.do(said="nothing")
