"""What goes wrong at the command line: one line that says what, where and what to do, and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import httpx
import psycopg
import pytest
from typer.testing import CliRunner, Result

from tidewheel.core.events import WaitsFor
from tidewheel.core.transitions import RunPhase
from tidewheel.log.interface import LogUnavailable
from tidewheel_services.cli import client, runs, waits
from tidewheel_services.cli.app import app
from tidewheel_services.cli.client import Client, Refused
from tidewheel_services.cli.faults import explain
from tidewheel_services.cli.processes import stop_on_signals
from tidewheel_services.config import Settings
from tidewheel_services.standalone import dev

real_client = httpx.Client
SOURCE = "`source DIR/.tidewheel/environment` first"


def tidewheel(*arguments: str) -> Result:
    """A command of the program."""
    return CliRunner().invoke(app, arguments)


def test_who_named_no_log_is_told_where_dev_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEWHEEL_LOG", raising=False)
    assert SOURCE in (explain(LogUnavailable(f"Kafka at {Settings().log.split('//')[1]} cannot be used")) or "")
    assert SOURCE not in (explain(LogUnavailable("Kafka at kafka.example:9092 cannot be used")) or "")
    monkeypatch.setenv("TIDEWHEEL_LOG", Settings().log)
    assert SOURCE not in (explain(LogUnavailable("Kafka at 127.0.0.1:9092 cannot be used")) or "")


def test_a_file_is_no_directory_to_run(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").touch()
    done = tidewheel("dev", str(tmp_path / "hello.yaml"))
    assert done.exit_code == 2
    assert f"is a file; name its directory: `tidewheel dev {tmp_path}`" in done.stderr


def test_dev_takes_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Path] = []
    monkeypatch.setattr(dev, "run_dev", lambda directory, **_: taken.append(directory))
    monkeypatch.chdir(tmp_path)
    done = tidewheel("dev")
    assert (done.exit_code, taken) == (0, [tmp_path.resolve()]), done.output


@pytest.mark.parametrize(
    "words", [("runs", "--state", "fail"), ("waits", "--for", "approva")], ids=lambda words: words[0]
)
def test_a_word_that_is_none_of_an_options_is_wrong_usage(words: tuple[str, ...]) -> None:
    done = tidewheel(*words)
    assert done.exit_code == 2
    assert "is not one of" in done.stderr


def test_the_words_of_options_are_those_of_the_api() -> None:
    assert get_args(runs.State) == get_args(RunPhase)
    assert get_args(waits.For) == get_args(WaitsFor)


def test_a_mistake_in_a_request_is_told_without_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"type": "urn:tidewheel:problem:invalid", "detail": "body.from: no date; body.to: no date", "errors": []}
    answered = httpx.MockTransport(lambda request: httpx.Response(422, json=document))
    monkeypatch.setattr(
        httpx, "Client", lambda **options: real_client(transport=answered, base_url=options["base_url"])
    )
    with Client(Settings()) as asking, pytest.raises(Refused, match=r"^from: no date; to: no date$"):
        asking.post("dags", "shop", "backfills", body={})


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (("--slots", "0"), "no slots; what runs goes on, and nothing starts until it has more"),
        (("--slots", "3"), "3 slots at most"),
        (("--unlimited",), "as many slots as its workers have"),
    ],
)
def test_a_pools_new_limit_is_said(limit: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.Client, "put", lambda *_, **__: {"message": ""})
    assert tidewheel("pools", "warehouse", *limit).stdout == f"pool warehouse: {says}\n"


def test_a_directory_that_takes_no_state_is_told_with_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / ".tidewheel").write_text("a file of that name")
    done = tidewheel("dev", str(tmp_path), "--port", "0")
    assert done.exit_code == 2
    assert f"the state of the engine cannot be kept in {tmp_path}/.tidewheel" in done.stderr
    assert "it needs a directory to write to" in done.stderr


def test_a_schedule_is_listed_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    dag = {
        "dag": "shop", "removed": False, "paused": False, "schedule": {"every_ms": 86_400_000}, "version": "v",
        "live_runs": 0, "last_run_id": None, "last_run_state": None,
    }  # fmt: skip
    monkeypatch.setattr(client.Client, "get", lambda *_, **__: {"items": [dag], "next": None})
    assert "every 1d" in tidewheel("dags").stdout


def test_a_command_gives_signals_back_to_who_had_them() -> None:
    def handler(number: int, frame: object) -> None:
        heard.append(number)

    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_connection_that_breaks_in_a_process_is_no_reader_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pipe broke was taken for that of its output: the process ended with status 0 and without a word."""

    def fail(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("tidewheel_services.projector.main.run_projector", fail)
    done = tidewheel("projector")
    assert done.exit_code == 1
    assert isinstance(done.exception, RuntimeError) and isinstance(done.exception.__cause__, BrokenPipeError)


def test_a_reader_that_has_gone_is_no_fault() -> None:
    """As of `tidewheel schema | head -1`."""
    program = [sys.executable, "-m", "tidewheel_services.cli", "schema"]
    path = os.pathsep.join(str(Path(__file__).parents[2] / root) for root in ("", "services", "projections"))
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        program, stdout=writes, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.ProgrammingError('missing "=" after "x" in connection info string'), True),
        (psycopg.errors.UndefinedTable('relation "runs" does not exist'), True),
        (psycopg.errors.InsufficientPrivilege("permission denied"), True),
        (psycopg.errors.UndefinedColumn('column "x" does not exist'), False),
        (psycopg.errors.SyntaxError("syntax error"), False),
        (psycopg.errors.NumericValueOutOfRange("integer out of range"), False),
        (psycopg.errors.UniqueViolation("duplicate key"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_statement_that_is_wrong_keeps_its_traceback(error: Exception, told: bool) -> None:
    """It was said to be Postgres, which is not running perhaps."""
    assert (explain(error) is not None) == told
