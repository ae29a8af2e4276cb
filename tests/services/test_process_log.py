"""No process depends on somebody reading its log lines."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from tidewheel_services.process_log import log_to_stderr

ROOT = Path(__file__).parents[2]
#: Says so, waits until nobody reads its lines, and then has a thread write one and go on.
TALKER = """
import sys, threading, structlog
from tidewheel_services.process_log import log_to_stderr
log_to_stderr()
log = structlog.get_logger()
log.warning("first")
sys.stdin.readline()
def work():
    for number in range(3):
        log.warning("not heard", number=number)
    print("went on", flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_a_line_is_json_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    structlog.get_logger().warning("a shard stands", shard=3)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["shard"], line["level"]) == ("a shard stands", 3, "warning")


def test_who_set_it_up_under_another_stderr_is_heard_on_this_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, io.StringIO() as other:
        patch.setattr(sys, "stderr", other)
        log_to_stderr()
    structlog.get_logger().warning("heard")
    assert '"event": "heard"' in capsys.readouterr().err


def test_a_thread_goes_on_when_the_reader_of_its_lines_has_gone() -> None:
    talker = subprocess.Popen(
        [sys.executable, "-c", TALKER],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'services'}:{ROOT / 'projections'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert talker.stderr is not None
    assert "first" in talker.stderr.readline()
    talker.stderr.close()
    assert talker.communicate("now\n", timeout=30)[0] == "went on\n"
