"""Shell tasks in real processes: outputs, failures, logs, and that nothing is left running."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from tests.worker.conftest import StartWorker, wait_until, written
from tests.worker.engine import Engine, run
from tidewheel.core.assignment import Secret
from tidewheel.core.commands import ReportCancelled, ReportHeartbeat, ReportStarted
from tidewheel_services.worker.processes import with_cookie


def alive(pid_file: Path) -> bool:
    """Whether the process that wrote its number there still runs."""
    try:
        stat = Path(f"/proc/{int(pid_file.read_text())}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_command_sees_the_attempt_and_leaves_an_output(
    engine: Engine, process_worker: StartWorker, project: Path
) -> None:
    process_worker()
    command = """
    printf '{"seen": "%s %s %s %s %s", "dir": "%s", "day": "%s"}' \
      "$TIDEWHEEL_DAG" "$TIDEWHEEL_RUN_ID" "$RUN_ID" "$TIDEWHEEL_TASK" "$TIDEWHEEL_ATTEMPT" "$PWD" \
      "$TIDEWHEEL_INTERVAL_START" > "$TIDEWHEEL_OUTPUT"
    """
    task = engine.assign(run(command), attempt=2, interval_start=86_400_000, interval_end=2 * 86_400_000)
    assert engine.success(task) == {
        "seen": f"shop r1 r1 {task} 2",
        "dir": str(project),
        "day": "1970-01-02T00:00:00Z",
    }


def test_a_value_is_one_argument_whatever_is_in_it(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    task = engine.assign(run('printf "<%s>" "$X"', X="x; echo hacked $(id) `id` ${{ secrets.y }}"))
    assert engine.success(task) is None
    assert engine.text(task) == "<x; echo hacked $(id) `id` ${{ secrets.y }}>"


def test_a_failure_says_status_and_last_word(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    failure = engine.failure(engine.assign(run("echo working; echo 'disk is full' >&2; exit 75")))
    assert (failure.kind, failure.exit_code) == ("exit_code", 75)
    assert failure.message == "exit status 75: disk is full"


def test_a_death_by_signal_is_one(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    failure = engine.failure(engine.assign(run("kill -SEGV $$")))
    assert (failure.kind, failure.message) == ("signal", "killed by SIGSEGV")
    inner = engine.failure(engine.assign(run("(kill -KILL $(exec sh -c 'echo $PPID')); exit $?")))
    assert inner.exit_code == 137 and "killed by SIGKILL" in inner.message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ('echo "{not json" > "$TIDEWHEEL_OUTPUT"', "is not JSON"),
        ('head -c 100000 /dev/zero > "$TIDEWHEEL_OUTPUT"', "100000 bytes"),
        ('mkfifo "$TIDEWHEEL_OUTPUT"', "no regular file"),
        ('ln -s /etc/passwd "$TIDEWHEEL_OUTPUT"', "cannot be read"),
    ],
)
def test_a_bad_output_file_fails_the_attempt(
    engine: Engine, process_worker: StartWorker, command: str, words: str
) -> None:
    process_worker()
    failure = engine.failure(engine.assign(run(command)))
    assert failure.kind == "output" and words in failure.message


def test_a_missing_directory_is_a_setup_failure(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker()
    project.rmdir()
    failure = engine.failure(engine.assign(run("true")))
    assert failure.kind == "setup" and str(project) in failure.message


def test_a_picture_letter_comes_whole_under_any_locale(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    # The letter's four bytes are written one by one.
    task = engine.assign(
        run(r"for byte in 360 237 246 211; do printf \\$byte; sleep 0.1; done; printf ' %s\377' $E", E="🐳")
    )
    engine.success(task)
    assert engine.text(task) == "🦉 🐳\ufffd"


def test_the_log_streams_while_the_task_runs(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    task = engine.assign(run("echo first; sleep 1.5; echo last"))
    wait_until(lambda: engine.text(task) == "first\n", "the first line before the end", 1.2)
    assert engine.endings(task) == []
    engine.success(task)
    assert engine.text(task) == "first\nlast\n"


def test_a_flood_of_output_is_bounded(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    task = engine.assign(run("head -c 30000000 /dev/zero | tr '\\0' x"))
    engine.success(task)
    text = engine.text(task)
    assert 10 * 1024 * 1024 < len(text) < 10 * 1024 * 1024 + 200
    assert text.endswith("characters is not kept]\n")


def test_a_timeout_ends_the_whole_group(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker()
    task = engine.assign(run("sleep 100 & echo $! > child; wait"), timeout_ms=300)
    failure = engine.failure(task)
    assert failure.kind == "timeout" and "0.3 s" in failure.message
    assert not alive(project / "child")


def test_a_command_may_tidy_up_within_the_grace(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker(grace_s=5.0)
    task = engine.assign(run("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    wait_until(lambda: engine.text(task) == "up\n", "up")
    engine.stop(task, cancel=True)
    before = time.monotonic()
    assert isinstance(engine.ending(task), ReportCancelled)
    assert time.monotonic() - before < 2
    assert engine.text(task) == "up\nbye\n"


STUBBORN = """
trap '' TERM
setsid sh -c 'trap "" TERM; echo $$ > escaped; while :; do sleep 0.1; done' &
( (echo $(exec sh -c 'echo $PPID') > daemon; exec setsid sleep 100) & )
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("cancel", [True, False])
def test_a_stop_finds_processes_that_left_the_group(
    engine: Engine, process_worker: StartWorker, project: Path, cancel: bool
) -> None:
    worker = process_worker(grace_s=0.3)
    task = engine.assign(run(STUBBORN))
    engine.wait(lambda: bool(engine.of(ReportStarted, task)), "started")
    wait_until(lambda: written(project / "escaped", project / "daemon"), "all are up")
    time.sleep(0.1)
    assert alive(project / "escaped") and alive(project / "daemon")
    engine.stop(task, cancel=cancel)
    if cancel:
        assert isinstance(engine.ending(task), ReportCancelled)
    else:
        wait_until(lambda: worker.running == 0, "ended in silence")
        assert engine.endings(task) == []
    # At the very moment of the report, not some time later.
    assert not alive(project / "escaped") and not alive(project / "daemon")
    assert engine.success(engine.assign(run("true"))) is None, "the worker goes on"


def test_what_a_command_leaves_behind_is_ended(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    process_worker()
    task = engine.assign(run("sleep 100 & echo $! > child; setsid sleep 100 & echo $! > escaped"))
    assert engine.success(task) is None
    assert not alive(project / "child") and not alive(project / "escaped")


def test_a_late_reader_of_the_output_may_finish(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    task = engine.assign(run("(sleep 0.2; echo from behind) & exit 0"))
    engine.success(task)
    assert engine.text(task) == "from behind\n"


def test_secrets_reach_the_command_and_nothing_else(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], project: Path
) -> None:
    secret, other = "s3cr3t/Wört+x", "another-one"
    environment |= {"TIDEWHEEL_SECRET_PASSWORD": secret, "TIDEWHEEL_SECRET_OTHER": other, "TIDEWHEEL_TOKEN": "token!"}
    process_worker()
    command = """
    [ ${#PW} -gt 8 ] && echo yes > got
    echo "plain $PW"; printf '%s' "$PW" | base64; printf 'user:%s' "$PW" | base64
    printf '%s' "$PW" | head -c 4; sleep 0.4; printf '%s' "$PW" | tail -c +5; echo
    env; printf '{"pw": "%s"}' "$PW" > "$TIDEWHEEL_OUTPUT"
    echo "failed with $PW" >&2; exit 3
    """
    task = engine.assign(run(command, PW=("", Secret("password"), "")))
    failure = engine.failure(task)
    assert failure.message == "exit status 3: failed with ***"
    assert (project / "got").exists()
    task = engine.assign(run('printf \'{"pw": "%s"}\' "$PW" > "$TIDEWHEEL_OUTPUT"', PW=(Secret("password"),)))
    assert engine.success(task) == {"pw": "***"}
    everything = engine.all_bytes()
    for plain in (secret, other, "token!", "s3cr", "czNjcjN0"):
        assert plain.encode() not in everything, plain


def test_no_half_of_a_secret_stays_in_the_last_line(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str]
) -> None:
    environment["TIDEWHEEL_SECRET_PASSWORD"] = "0123456789abcdef" * 2
    process_worker()
    command = 'printf "%s" "$PW" >&2; head -c 484 /dev/zero | tr "\\0" x >&2; exit 3'
    failure = engine.failure(engine.assign(run(command, PW=(Secret("password"),))))
    assert failure.message == f"exit status 3: ***{'x' * 484}"


def test_a_missing_secret_is_named(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    failure = engine.failure(engine.assign(run("true", PW=(Secret("warehouse"),))))
    assert failure.kind == "setup"
    assert "secret 'warehouse' is missing" in failure.message
    assert "TIDEWHEEL_SECRET_WAREHOUSE" in failure.message


def test_a_busy_silent_task_outlives_its_lease(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    engine.lease_ms = 3_000
    task = engine.assign(run("sleep 8"))
    engine.success(task)
    beats = engine.instants(ReportStarted, task) + engine.instants(ReportHeartbeat, task)
    assert len(beats) >= 6
    assert max(later - earlier for earlier, later in itertools.pairwise(beats)) < 3.0


def test_a_cut_network_ends_the_task_before_its_lease(
    engine: Engine, process_worker: StartWorker, project: Path
) -> None:
    process_worker()
    engine.lease_ms = 2_000
    task = engine.assign(run("trap '' TERM; echo $$ > pid; while :; do date +%s.%N >> beats; sleep 0.02; done"))
    engine.wait(lambda: bool(engine.of(ReportHeartbeat, task)), "a beat")
    engine.silent = True
    last_renewal = time.time()
    failure = engine.failure(task)
    assert failure.kind == "worker_lost"
    assert not alive(project / "pid")
    assert float((project / "beats").read_text().split("\n")[-2]) < last_renewal + 2.0
    # The worker goes on.
    engine.silent = False
    assert engine.success(engine.assign(run("true"))) is None


def test_a_command_longer_than_the_system_takes_is_refused(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    failure = engine.failure(engine.assign(run("true", BIG="x" * 500_000)))
    assert failure.kind == "setup" and "too long" in failure.message


def test_nothing_is_left_when_the_worker_stops(engine: Engine, process_worker: StartWorker, project: Path) -> None:
    worker = process_worker()
    task = engine.assign(run("trap '' TERM; setsid sleep 100 & echo $! > child; while :; do sleep 0.1; done"))
    wait_until(lambda: written(project / "child"), "up")
    worker.stop(drain_s=0.1)
    failure = engine.failure(task)
    assert failure.kind == "worker_lost" and "shutting down" in failure.message
    assert not alive(project / "child")


def test_a_killed_supervisor_is_replaced_and_its_tasks_are_gone(
    engine: Engine, process_worker: StartWorker, project: Path, supervisor: object
) -> None:
    process_worker()
    task = engine.assign(run("setsid sleep 100 & echo $! > child; echo $$ > self; while :; do sleep 0.1; done"))
    wait_until(lambda: written(project / "child", project / "self"), "up")
    os.kill(supervisor.pid, 9)  # type: ignore[attr-defined]
    assert engine.failure(task).kind == "worker_lost"
    assert engine.success(engine.assign(run("true"))) is None
    wait_until(lambda: not alive(project / "child") and not alive(project / "self"), "nothing left", 2)


def test_cookies_are_found() -> None:
    assert with_cookie("no such cookie ") == []


def test_a_command_goes_on_from_the_file_that_an_earlier_attempt_left(
    engine: Engine, process_worker: StartWorker
) -> None:
    process_worker()
    command = """
    test "$(cat "$TIDEWHEEL_CHECKPOINT")" = '{"page":6}' || exit 1
    printf '{"page": 7}' > "$TIDEWHEEL_CHECKPOINT.new" && mv "$TIDEWHEEL_CHECKPOINT.new" "$TIDEWHEEL_CHECKPOINT"
    exit 75
    """
    task = engine.assign(run(command), attempt=2, checkpoint='{"page":6}')
    assert engine.failure(task).exit_code == 75
    assert engine.checkpoints(task) == [{"page": 7}]
    assert engine.said_before_its_end(task)


def test_a_checkpoint_file_is_looked_at_while_the_command_runs(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    task = engine.assign(run('test ! -e "$TIDEWHEEL_CHECKPOINT" || exit 1; echo 1 > "$TIDEWHEEL_CHECKPOINT"; sleep 60'))
    engine.wait(lambda: engine.checkpoints(task) == [1], "the checkpoint", 30.0)
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task, 30.0), ReportCancelled)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        ("""printf '{"half' > "$TIDEWHEEL_CHECKPOINT" """, "is not JSON"),
        ("""head -c 70000 /dev/zero > "$TIDEWHEEL_CHECKPOINT" """, "70000 bytes"),
        ("""mkfifo "$TIDEWHEEL_CHECKPOINT" """, "no regular file"),
        ("""ln -s /etc/passwd "$TIDEWHEEL_CHECKPOINT" """, "cannot be read"),
    ],
)
def test_a_checkpoint_file_that_holds_none_is_told_in_the_log(
    engine: Engine, process_worker: StartWorker, write: str, said: str
) -> None:
    process_worker()
    task = engine.assign(run(f"{write}; exit 1"), checkpoint=None)
    assert engine.failure(task).kind == "exit_code"
    assert engine.checkpoints(task) == []
    text = "".join(chunk.text for chunk in engine.chunks(task))
    assert "the checkpoint is not kept" in text and said in text


def test_a_file_that_was_only_read_is_not_saved_again(engine: Engine, process_worker: StartWorker) -> None:
    process_worker()
    task = engine.assign(run('cat "$TIDEWHEEL_CHECKPOINT"; exit 1'), checkpoint="[1]")
    engine.failure(task)
    assert engine.text(task) == "[1]"
    assert engine.checkpoints(task) == []
