"""Functions registered with an embedded worker: called, reported, bounded."""

from __future__ import annotations

import threading
import time

import pytest

from tests.worker.conftest import StartWorker, wait_until
from tests.worker.engine import Engine, python, run
from tidewheel.core.assignment import PythonSpec, Secret
from tidewheel.core.commands import (
    JoinPool,
    LeavePool,
    ReportCancelled,
    ReportHeartbeat,
    ReportStarted,
    ReportSuccess,
)
from tidewheel.log.interface import COMMANDS
from tidewheel.worker import Context, Worker, current
from tidewheel.worker.attempt import Attempt
from tidewheel.worker.roster import Roster


def test_a_function_gets_its_arguments_and_its_result_is_the_output(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(functions={"shop:add": lambda a, b: {"sum": a + b}})
    assert engine.success(engine.assign(python("shop:add", a=2, b=40))) == {"sum": 42}


def test_a_decorated_function_is_registered(engine: Engine, start_worker: StartWorker) -> None:
    worker = start_worker()

    @worker.function("late")
    def late() -> str:
        return "here"

    assert engine.success(engine.assign(python("late"))) == "here"
    assert late() == "here"


def test_a_coroutine_is_awaited(engine: Engine, start_worker: StartWorker) -> None:
    async def answer() -> int:
        return 42

    start_worker(functions={"answer": answer})
    assert engine.success(engine.assign(python("answer"))) == 42


def test_a_short_task_costs_one_report(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(64, functions={"noop": lambda: None})
    tasks = [engine.assign(python("noop")) for _ in range(200)]
    endings = [engine.ending(task) for task in tasks]
    assert all(isinstance(ending, ReportSuccess) and ending.started_at <= ending.ended_at for ending in endings)
    # A few may be overtaken by the clock on a busy machine, each at most once.
    assert len(engine.of(ReportStarted)) < 100
    assert all(len(engine.endings(task)) == 1 for task in tasks)


def test_a_started_report_never_follows_the_end(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(32, functions={"brief": lambda: time.sleep(0.003)})
    tasks = [engine.assign(python("brief")) for _ in range(200)]
    for task in tasks:
        engine.ending(task)
    assert engine.of(ReportStarted), "3 ms are around the time a started report is held; some must have been sent"
    for task in tasks:
        kinds = [type(command) for _, command in engine.seen if getattr(command, "task", None) == task]
        assert kinds in ([ReportSuccess], [ReportStarted, ReportSuccess]), task


def test_a_longer_task_is_reported_started_soon(engine: Engine, start_worker: StartWorker) -> None:
    release = threading.Event()
    start_worker(functions={"hang": lambda: release.wait(20)})
    task = engine.assign(python("hang"))
    # The first beat is due after ten seconds: what comes sooner is the report of the start.
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started", 5)
    release.set()
    engine.success(task)


def test_an_exception_says_type_message_and_place(engine: Engine, start_worker: StartWorker) -> None:
    def fail() -> None:
        raise ValueError("no such file: α.csv")

    start_worker(functions={"fail": fail})
    failure = engine.failure(engine.assign(python("fail")))
    assert failure.kind == "exception"
    assert failure.message.startswith("ValueError: no such file: α.csv\n")
    assert "in fail" in failure.message and "tidewheel/task/call.py" not in failure.message


def test_a_deep_or_long_exception_stays_short(engine: Engine, start_worker: StartWorker) -> None:
    def deep(n: int = 0) -> None:
        deep(n + 1)

    def long() -> None:
        raise ValueError("x" * 1_000_000)

    start_worker(functions={"deep": deep, "long": long})
    assert len(engine.failure(engine.assign(python("deep"))).message) < 10_000
    assert len(engine.failure(engine.assign(python("long"))).message) < 10_000


def test_wrong_arguments_and_exits_are_failures(engine: Engine, start_worker: StartWorker) -> None:
    def leave(code: object) -> None:
        raise SystemExit(code)

    start_worker(functions={"leave": leave})
    assert "unexpected keyword argument" in engine.failure(engine.assign(python("leave", nope=1))).message
    failure = engine.failure(engine.assign(python("leave", code=3)))
    assert (failure.kind, failure.exit_code) == ("exit_code", 3)
    assert engine.success(engine.assign(python("leave", code=0))) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("x" * 2_000_000, ["2000002 bytes", "65536"]),
        (object(), ["cannot be written as JSON", "object"]),
        ("\ud800", ["cannot be written as JSON"]),
    ],
)
def test_an_output_that_cannot_travel_is_refused(
    engine: Engine, start_worker: StartWorker, value: object, words: list[str]
) -> None:
    start_worker(functions={"give": lambda: value})
    failure = engine.failure(engine.assign(python("give")))
    assert failure.kind == "output"
    assert all(word in failure.message for word in words)


def test_the_largest_output_travels(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(functions={"give": lambda: "x" * (64 * 1024 - 2)})
    assert len(str(engine.success(engine.assign(python("give"))))) == 64 * 1024 - 2


def test_an_unknown_function_names_the_nearest(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(functions={"shop.etl:list_files": lambda: None})
    failure = engine.failure(engine.assign(python("shop.etl:list_file")))
    assert failure.kind == "setup"
    assert "did you mean 'shop.etl:list_files'?" in failure.message


def test_an_action_nobody_here_runs_or_can_read_is_a_setup_failure(engine: Engine, start_worker: StartWorker) -> None:
    start_worker()
    assert "runs no 'run' actions" in engine.failure(engine.assign(run("true"))).message
    failure = engine.failure(engine.assign('{"type":"teleport"}'))
    assert failure.kind == "setup" and "cannot read the action" in failure.message


def test_the_context_names_the_attempt(engine: Engine, start_worker: StartWorker) -> None:
    def tell(context: Context) -> list[object]:
        assert current() is context
        assert context.interval is not None
        return [
            context.dag,
            context.run_id,
            context.task,
            context.attempt,
            context.idempotency_key,
            context.interval[1],
        ]

    start_worker(functions={"tell": tell})
    task = engine.assign(python("tell"), attempt=3, interval_start=0, interval_end=86_400_000)
    assert engine.success(task) == ["shop", "r1", task, 3, f"shop/r1/{task}", "1970-01-02T00:00:00Z"]


def test_there_is_no_context_outside_of_a_task() -> None:
    with pytest.raises(LookupError, match="only inside a function"):
        current()


def test_progress_travels_with_a_beat(engine: Engine, start_worker: StartWorker) -> None:
    def work(context: Context) -> None:
        context.heartbeat({"rows": 10})
        time.sleep(1.5)

    start_worker(functions={"work": work})
    task = engine.assign(python("work"))
    engine.wait(lambda: bool(engine.of(ReportHeartbeat, task)), "a beat with progress", 3)
    assert engine.of(ReportHeartbeat, task)[0].progress == '{"rows":10}'


def test_progress_is_masked_and_bounded(engine: Engine, start_worker: StartWorker) -> None:
    def work(context: Context) -> None:
        context.heartbeat({"with": context.env["PW"]})
        time.sleep(1.3)
        context.heartbeat("x" * 200_000)
        time.sleep(1.3)

    start_worker(functions={"work": work}, secrets={"password": "hunter22"})
    task = engine.assign(PythonSpec(callable="work", env={"PW": (Secret("password"),)}))
    engine.wait(lambda: len(engine.of(ReportHeartbeat, task)) == 2, "two beats with progress", 5)
    shown = [beat.progress for beat in engine.of(ReportHeartbeat, task)]
    assert shown == ['{"with":"***"}', '"progress of 200002 bytes is not shown: at most 16384 are"']


def test_no_half_of_a_secret_stays_where_a_message_is_cut(engine: Engine, start_worker: StartWorker) -> None:
    secret = "".join(chr(0x100 + number) for number in range(200))

    def fail(context: Context) -> None:
        raise ValueError("y" * int(context.env["SHIFT"]) + context.env["PW"] * 40)

    start_worker(functions={"fail": fail}, secrets={"password": secret})
    for shift in ("0", "100"):
        env = {"PW": (Secret("password"),), "SHIFT": (shift,)}
        message = engine.failure(engine.assign(PythonSpec(callable="fail", env=env))).message
        assert "***" in message
        assert not set(secret) & set(message)


def test_env_and_log_of_a_function_with_secrets_masked(engine: Engine, start_worker: StartWorker) -> None:
    def connect(context: Context) -> str:
        context.log(f"connecting as {context.env['DSN']}")
        return context.env["DSN"]

    start_worker(functions={"connect": connect}, secrets={"password": "hunter22"})
    action = PythonSpec(callable="connect", env={"DSN": ("user:", Secret("password"), "@db")})
    task = engine.assign(action)
    assert engine.success(task) == "user:***@db"
    assert engine.text(task) == "connecting as user:***@db\n"
    missing = PythonSpec(callable="connect", env={"DSN": (Secret("other"),)})
    failure = engine.failure(engine.assign(missing))
    assert "secret 'other' is not known" in failure.message


def test_a_timeout_is_reported_at_once_and_the_slot_stays_taken(engine: Engine, start_worker: StartWorker) -> None:
    release, cancelled = threading.Event(), threading.Event()

    def hang(context: Context) -> str:
        release.wait(10)
        cancelled.set() if context.cancelled.is_set() else None
        return "too late"

    worker = start_worker(2, functions={"hang": hang})
    task = engine.assign(python("hang"), timeout_ms=100)
    failure = engine.failure(task)
    assert failure.kind == "timeout" and "0.1 s" in failure.message
    engine.wait(lambda: engine.of(JoinPool)[-1].slots == 1, "one slot less is offered")
    release.set()
    engine.wait(lambda: engine.of(JoinPool)[-1].slots == 2, "the slot is offered again")
    assert cancelled.is_set()
    assert len(engine.endings(task)) == 1
    assert worker.running == 0


def test_a_function_that_returns_as_it_is_ended_keeps_no_slot(
    engine: Engine, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start_worker(1, functions={"work": lambda context: context.cancelled.wait(10), "next": lambda: "here"})
    settle = Roster.settle

    def settle_late(roster: Roster, attempt: Attempt) -> bool:
        won = settle(roster, attempt)
        if won and not attempt.assignment.task.startswith("next"):
            wait_until(lambda: attempt not in worker._slots.occupied, "its thread is back")
        return won

    monkeypatch.setattr(Roster, "settle", settle_late)
    assert engine.failure(engine.assign(python("work"), timeout_ms=50)).kind == "timeout"
    assert engine.success(engine.assign(python("next"), "next")) == "here"
    assert engine.of(LeavePool) == []


def test_when_all_slots_are_stuck_the_worker_leaves_the_pool(engine: Engine, start_worker: StartWorker) -> None:
    release = threading.Event()
    start_worker(1, functions={"hang": lambda: release.wait(10)})
    engine.failure(engine.assign(python("hang"), timeout_ms=50))
    engine.wait(lambda: bool(engine.of(LeavePool)), "it leaves")
    release.set()
    engine.wait(lambda: len(engine.of(JoinPool)) > 1, "it joins again")


def test_a_cancelled_function_is_reported_when_it_has_returned(engine: Engine, start_worker: StartWorker) -> None:
    def work(context: Context) -> str:
        context.cancelled.wait(10)
        time.sleep(0.2)
        return "tidied up"

    start_worker(functions={"work": work})
    task = engine.assign(python("work"))
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
    before = time.monotonic()
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task), ReportCancelled)
    assert time.monotonic() - before >= 0.2


def test_a_fenced_attempt_is_ended_in_silence(engine: Engine, start_worker: StartWorker) -> None:
    ended = threading.Event()

    def work(context: Context) -> None:
        context.cancelled.wait(10)
        ended.set()

    worker = start_worker(functions={"work": work})
    task = engine.assign(python("work"))
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
    engine.stop(task, cancel=False)
    assert ended.wait(2)
    engine.wait(lambda: worker.running == 0, "gone")
    assert engine.endings(task) == []


def test_bad_arguments_of_a_worker_are_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        Worker(engine.log, {"default": 0})
    with pytest.raises(TypeError, match="'f' is not callable"):
        Worker(engine.log, {"default": 1}, functions={"f": "text"})  # type: ignore[dict-item]
    assert all(engine.log.end_offset(COMMANDS, partition) == 0 for partition in range(2))


def test_a_failed_function_leaves_its_checkpoint_before_its_end(engine: Engine, start_worker: StartWorker) -> None:
    def load(context: Context) -> None:
        assert context.checkpoint == {"page": 6}
        for page in (7, 8):
            context.save_checkpoint({"page": page})
        assert context.checkpoint == {"page": 8}
        raise OSError("the source is gone")

    start_worker(functions={"load": load})
    task = engine.assign(python("load"), attempt=2, checkpoint='{"page":6}')
    engine.failure(task)
    assert engine.checkpoints(task)[-1] == {"page": 8}
    assert engine.said_before_its_end(task)


def test_a_long_function_leaves_its_checkpoint_while_it_runs(engine: Engine, start_worker: StartWorker) -> None:
    go_on = threading.Event()

    def load(context: Context) -> None:
        context.save_checkpoint([1])
        go_on.wait(60)

    start_worker(functions={"load": load})
    task = engine.assign(python("load"))
    engine.wait(lambda: engine.checkpoints(task) == [[1]], "the checkpoint", 30.0)
    go_on.set()
    engine.success(task)


@pytest.mark.parametrize(("value", "said"), [("x" * 70_000, "70,002 bytes"), (object(), "cannot be written as JSON")])
def test_a_checkpoint_that_cannot_be_kept_is_an_error_of_the_function(
    engine: Engine, start_worker: StartWorker, value: object, said: str
) -> None:
    start_worker(functions={"load": lambda context: context.save_checkpoint(value)})
    task = engine.assign(python("load"))
    assert said in engine.failure(task).message
    assert engine.checkpoints(task) == []


def test_of_a_success_no_checkpoint_is_needed(engine: Engine, start_worker: StartWorker) -> None:
    start_worker(functions={"load": lambda context: context.save_checkpoint(1)})
    task = engine.assign(python("load"))
    engine.success(task)
    assert engine.checkpoints(task) == []


def test_a_secret_in_a_checkpoint_is_masked(engine: Engine, start_worker: StartWorker) -> None:
    def load(context: Context) -> None:
        context.save_checkpoint({"token": context.env["TOKEN"]})
        raise OSError

    start_worker(functions={"load": load}, secrets={"token": "tops3cret"})
    task = engine.assign(PythonSpec(callable="load", env={"TOKEN": (Secret("token"),)}))
    engine.failure(task)
    assert engine.checkpoints(task) == [{"token": "***"}]
