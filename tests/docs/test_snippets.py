"""Python that the documentation shows is run, against an engine in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.docs.pages import fences
from tidewheel.core.commands import DeployDag, StartRun
from tidewheel.core.rules import Rules
from tidewheel.definition.canonical import canonical_json
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.definition.load import load_text
from tidewheel.log.interface import COMMANDS, Append, Log
from tidewheel.log.opening import open_log
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.wire.codec import encode


def snippet(page: str) -> dict[str, Any]:
    """Run the page's Python as a module; gives its names."""
    (text,) = (fence.text for fence in fences() if fence.page == page and fence.words == ("python", "run"))
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(text, page, "exec"), names)
    return names


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A scheduler over an SQLite log, which ``TIDEWHEEL_LOG`` names."""
    url = f"sqlite://{tmp_path / 'log.db'}?partitions=2"
    monkeypatch.setenv("TIDEWHEEL_LOG", url)
    log = open_log(url)
    log.create_topics()
    stop = threading.Event()
    evaluator = CelEvaluator()
    scheduler = Scheduler(log, "docs", evaluator, rules=Rules(evaluator=evaluator, lease_ms=5_000))
    thread = threading.Thread(target=scheduler.run, args=(stop,))
    thread.start()
    yield log
    stop.set()
    thread.join(10)
    log.close()


def test_the_embedded_worker_runs_its_workflow_and_the_journal_is_replayed(
    engine: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = (
        fence.text for fence in fences() if fence.page == "docs/workers.md" and fence.words == ("yaml", "workflow")
    )
    loaded = load_text(text, "docs/workers.md")
    assert loaded.workflow is not None
    assert loaded.version is not None
    producer = engine.producer()
    for command in (
        DeployDag(dag="embedded", version=loaded.version, definition=canonical_json(loaded.workflow)),
        StartRun(dag="embedded", run_id="r1"),
    ):
        producer.send(Append(COMMANDS, b"embedded", encode(command)))
    stop = threading.Event()
    embedded = snippet("docs/workers.md")
    worker = threading.Thread(target=embedded["serve"], args=(stop,))
    worker.start()
    monkeypatch.setenv("DAG", "embedded")
    outputs: dict[str, Any] = {}
    deadline = time.monotonic() + 20
    while "RunSucceeded" not in capsys.readouterr().out:
        assert time.monotonic() < deadline, "the run did not end"
        for recorded, _ in snippet("docs/journal.md")["replay"]("embedded"):
            if type(recorded.event).__name__ == "TaskSucceeded":
                outputs[recorded.event.task] = msgspec.json.decode(recorded.event.output)
    stop.set()
    worker.join(20)
    producer.close()
    embedded["log"].close()
    assert outputs["list"] == ["2026-01-31/a.csv", "2026-01-31/b.csv"]
    assert outputs["load"] == {"loaded": "2026-01-31/a.csv"}
