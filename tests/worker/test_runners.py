"""Python callables in warm runners: results, isolation of one call from the next, and every way to die."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worker.conftest import StartWorker, wait_until, written
from tests.worker.engine import Engine, python
from tests.worker.test_shell import alive
from tidewheel.core.assignment import PythonSpec, Secret
from tidewheel.core.commands import ReportCancelled, ReportFailure, ReportHeartbeat, ReportStarted

CODE = """
import asyncio, ctypes, logging, os, signal, subprocess, sys, threading, time
from pathlib import Path

logging.basicConfig(level="INFO", format="%(message)s")

def pid():
    return os.getpid()

def add(a, b):
    return {"sum": a + b}

async def later():
    await asyncio.sleep(0)
    return "async"

class Shop:
    @staticmethod
    def sell():
        return "sold"

def tell(context):
    from tidewheel.task import current
    assert current() is context
    context.heartbeat({"half": True})
    return [context.idempotency_key, context.attempt, os.environ["TIDEWHEEL_TASK"], os.environ["COLOUR"], os.getcwd()]

def load(context, die=False):
    context.save_checkpoint({"after": context.checkpoint})
    if die:
        context.save_checkpoint("x" * 60_000)
        os.kill(os.getpid(), 9)
    raise OSError("gone")

def speak():
    print("out 🦉")
    print("err", file=sys.stderr)
    logging.getLogger("shop").info("logged")
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "child"])
    ctypes.CDLL(None).puts(b"from C")

def mess():
    os.environ["LEFT"] = "over"
    os.environ.pop("PATH", None)
    os.chdir("/")
    sys.path.insert(0, "/nowhere")
    os.umask(0)
    sys.stdout.close()
    os.close(2)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return os.getpid()

def look():
    print("still heard")
    found = [os.environ.get("LEFT"), os.environ.get("COLOUR"), "PATH" in os.environ]
    return [*found, os.getcwd(), "/nowhere" in sys.path, os.getpid()]

def thread():
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
    return os.getpid()

def child():
    process = subprocess.Popen(["sleep", "100"], start_new_session=True)
    Path("child").write_text(str(process.pid))
    return os.getpid()

def raises():
    raise KeyError("day")

def exits(code):
    sys.exit(code)

def drops(code):
    print("last words", file=sys.stderr, flush=True)
    os._exit(code)

def crashes():
    ctypes.string_at(0)

def closes():
    os.closerange(3, 1024)
    time.sleep(0.1)

def big():
    return "x" * 2_000_000

def hangs(stubborn=False):
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process = subprocess.Popen(["setsid", "sleep", "100"])
    Path("child").write_text(str(process.pid))
    Path("self").write_text(str(os.getpid()))
    try:
        while True:
            time.sleep(0.05)
    finally:
        print("tidied up")

not_callable = 42
"""


@pytest.fixture(autouse=True)
def code(project: Path) -> None:
    (project / "shop.py").write_text(CODE)
    # Names of the library's that a project may well use; the runner must not stumble over them.
    (project / "queue.py").write_text("raise RuntimeError('the project came first')")
    (project / "messages.py").write_text("")


def test_calls_share_a_warm_process(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    first = engine.success(engine.assign(python("shop:pid")))
    assert first == engine.success(engine.assign(python("shop:pid")))
    assert engine.success(engine.assign(python("shop:add", a=1, b=2))) == {"sum": 3}
    assert engine.success(engine.assign(python("shop:later"))) == "async"
    assert engine.success(engine.assign(python("shop:Shop.sell"))) == "sold"


def test_concurrent_calls_have_a_process_each(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    (project / "slow.py").write_text("import os, time\ndef pid():\n    time.sleep(0.5)\n    return os.getpid()\n")
    process_worker()
    tasks = [engine.assign(python("slow:pid")) for _ in range(3)]
    assert len({engine.success(task) for task in tasks}) == 3


def test_a_call_knows_its_attempt(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker()
    action = PythonSpec(callable="shop:tell", env={"COLOUR": ("blue",)})
    task = engine.assign(action, attempt=4)
    assert engine.success(task) == [f"shop/r1/{task}", 4, task, "blue", str(project)]


def test_progress_of_a_call_is_shown(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    (project / "slow.py").write_text(
        "import time\ndef work(context):\n    context.heartbeat(50)\n    time.sleep(1.6)\n"
    )
    process_worker()
    task = engine.assign(python("slow:work"))
    engine.success(task)
    assert [beat.progress for beat in engine.of(ReportHeartbeat, task)] == ["50"]


def test_all_that_a_call_prints_is_its_log(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    for _ in range(2):
        task = engine.assign(python("shop:speak"))
        engine.success(task)
        assert sorted(engine.text(task).splitlines()) == sorted(["out 🦉", "raw", "child", "from C"])
        assert engine.text(task, "stderr") == "err\nlogged\n"


def test_a_call_leaves_no_trace_for_the_next(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker()
    pid = engine.success(engine.assign(PythonSpec(callable="shop:mess", env={"COLOUR": ("red",)})))
    task = engine.assign(python("shop:look"))
    assert engine.success(task) == [None, None, True, str(project), False, pid]
    assert engine.text(task) == "still heard\n"


@pytest.mark.parametrize("leak", ["thread", "child"])
def test_what_cannot_be_undone_ends_the_runner(
    engine: Engine, process_worker: StartWorker, project: Path, leak: str
) -> None:
    process_worker()
    pid = engine.success(engine.assign(python(f"shop:{leak}")))
    assert engine.success(engine.assign(python("shop:pid"))) != pid
    if leak == "child":
        wait_until(lambda: not alive(project / "child"), "the child is ended with the runner", 2)


ENDS: list[tuple[PythonSpec, str, str, int | None]] = [
    (python("shop:raises"), "exception", "KeyError: 'day'", None),
    (python("shop:add", a=1), "exception", "missing 1 required positional argument: 'b'", None),
    (python("shop:exits", code=4), "exit_code", "sys.exit(4)", 4),
    (python("shop:drops", code=5), "exit_code", "status 5: last words", 5),
    (python("shop:drops", code=0), "exception", "without a result", None),
    (python("shop:crashes"), "signal", "SIGSEGV", None),
    (python("shop:closes"), "exception", "closed files that are not its own", None),
    (python("shop:big"), "output", "2000002 bytes", None),
    (python("shop:nothing"), "setup", "has no attribute 'nothing'", None),
    (python("shop:not_callable"), "setup", "not callable, it is a int", None),
    (python("no_such_module:f"), "setup", "No module named 'no_such_module'", None),
    (python("shop"), "setup", "not of the form module:callable", None),
]


def test_every_end_has_its_kind_and_the_next_call_is_fine(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    tasks = [engine.assign(action) for action, _, _, _ in ENDS]
    for task, (action, kind, words, exit_code) in zip(tasks, ENDS, strict=True):
        failure = engine.failure(task)
        assert (failure.kind, failure.exit_code) == (kind, exit_code), action
        assert words in failure.message, action
    for task in [engine.assign(python("shop:add", a=1, b=2)) for _ in range(8)]:
        assert engine.success(task) == {"sum": 3}


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_cancel_ends_the_call_and_its_children(
    engine: Engine, process_worker: StartWorker, project: Path, stubborn: bool
) -> None:
    process_worker(grace_s=0.5 if stubborn else 20)
    task = engine.assign(python("shop:hangs", stubborn=stubborn))
    wait_until(lambda: written(project / "self"), "up")
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task), ReportCancelled)
    assert not alive(project / "self") and not alive(project / "child")
    assert engine.text(task) == ("" if stubborn else "tidied up\n")
    engine.success(engine.assign(python("shop:pid")))


def test_a_timeout_ends_the_call(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker(grace_s=0.3)
    failure = engine.failure(engine.assign(python("shop:hangs"), timeout_ms=400))
    assert failure.kind == "timeout"
    assert not alive(project / "self")


def test_changed_code_is_taken_up(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    (project / "version.py").write_text("def get():\n    return 1\n")
    process_worker()
    assert engine.success(engine.assign(python("version:get"))) == 1
    (project / "version.py").write_text("def get():\n    return 'two'\n")
    assert engine.success(engine.assign(python("version:get"))) == "two"


def test_idle_runners_killed_from_outside_harm_nobody(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    pid = engine.success(engine.assign(python("shop:pid")))
    assert isinstance(pid, int)
    os.kill(pid, 9)
    assert engine.success(engine.assign(python("shop:pid"))) != pid


def test_secrets_are_masked_in_results_and_errors(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], project: Path
) -> None:
    secret = 'pass"word\\1'
    environment["TIDEWHEEL_SECRET_PW"] = secret
    (project / "leaky.py").write_text(
        "import os, json\n"
        "def give():\n    print(os.environ['PW'], repr(os.environ['PW']), json.dumps(os.environ['PW']))\n"
        "    return {'pw': os.environ['PW']}\n"
        "def fail():\n    raise ValueError(f'cannot log in with {os.environ[\"PW\"]!r}')\n"
    )
    process_worker()
    env = {"PW": (Secret("pw"),)}
    task = engine.assign(PythonSpec(callable="leaky:give", env=env))
    assert engine.success(task) == {"pw": "***"}
    assert (
        "cannot log in with '***'" in engine.failure(engine.assign(PythonSpec(callable="leaky:fail", env=env))).message
    )
    for plain in (b"pass", b"word", b"\\1"):
        assert plain not in engine.all_bytes(), plain


def test_what_an_earlier_call_said_explains_no_other(
    engine: Engine, process_worker: StartWorker, project: Path
) -> None:
    (project / "two.py").write_text(
        "import os, sys\n"
        "def first():\n    print('of the first', file=sys.stderr)\n    return os.getpid()\n"
        "def second():\n    os._exit(3)\n"
    )
    process_worker()
    assert engine.success(engine.assign(python("two:first")))
    assert engine.failure(engine.assign(python("two:second"))).message.endswith("with status 3")


def test_a_stopped_worker_cannot_overrun_a_lease(
    engine: Engine, process_worker: StartWorker, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor ends the call by itself when the worker's own clock does nothing (SIGSTOP, a hung interpreter)."""
    from tidewheel.worker.watch import Watch

    process_worker()
    engine.success(engine.assign(python("shop:pid")))
    task = engine.assign(python("shop:hangs"), lease_ms=4_000)
    monkeypatch.setattr(Watch, "_turn", lambda self, now: now + 0.1)
    wait_until(lambda: written(project / "self"), "up")
    failure = engine.failure(task, 6)
    assert isinstance(failure, ReportFailure) and failure.kind == "worker_lost"
    assert not engine.of(ReportStarted, task)
    assert not alive(project / "self") and not alive(project / "child")


def test_a_warm_call_costs_a_small_part_of_an_interpreter(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    engine.success(engine.assign(python("shop:pid")))
    warm, cold = [], []
    for _ in range(11):
        before = time.perf_counter()
        engine.success(engine.assign(python("shop:pid")))
        warm.append(time.perf_counter() - before)
        before = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import msgspec"], check=True)
        cold.append(time.perf_counter() - before)
    assert statistics.median(warm) < statistics.median(cold) / 2


@pytest.mark.parametrize("die", [False, True])
def test_what_a_call_saved_is_there_for_the_next_however_it_ended(
    engine: Engine, process_worker: StartWorker, die: bool
) -> None:
    process_worker()
    task = engine.assign(python("shop:load", die=die), attempt=2, checkpoint="[7]")
    failure = engine.failure(task, 30.0)
    assert failure.kind == ("signal" if die else "exception"), failure.message
    assert engine.checkpoints(task)[-1] == ("x" * 60_000 if die else {"after": [7]})
    assert engine.said_before_its_end(task)
