"""The scheduler as a process: a name is held once, and what hangs begins again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel_services.instance import NameTaken, hold_name
from tidewheel_services.scheduler.main import Pulse

LOG = "kafka://nowhere:1?prefix=test."


def test_a_name_is_held_once_and_free_again_after() -> None:
    with hold_name("scheduler", LOG, "one", "") as held:
        assert held == "one"
        with pytest.raises(NameTaken, match="--name"), hold_name("scheduler", LOG, "one", ""):
            pass
        # Elsewhere it is another name.
        with hold_name("scheduler", LOG + "x", "one", "") as other:
            assert other == "one"
    with hold_name("scheduler", LOG, "one", "") as held:
        assert held == "one"


def test_processes_without_a_name_get_numbers() -> None:
    with hold_name("scheduler", LOG, "", "host") as first, hold_name("scheduler", LOG, "", "host") as second:
        assert (first, second) == ("host", "host-2")


def test_a_killed_process_gives_its_name_up() -> None:
    code = f"""if True:
        import time
        from tidewheel_services.instance import hold_name
        with hold_name("scheduler", {LOG!r}, "killed", ""):
            print("held", flush=True)
            time.sleep(60)
    """
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(NameTaken), hold_name("scheduler", LOG, "killed", ""):
        pass
    holder.kill()
    holder.communicate()
    with hold_name("scheduler", LOG, "killed", ""):
        pass


def test_a_process_that_hangs_begins_again_as_itself(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, pathlib, sys, threading, time\n"
        "from tidewheel_services.scheduler.main import begin_again\n"
        "seen = pathlib.Path(sys.argv[1])\n"
        "with seen.open('a') as file: file.write(f'{os.getpid()}\\n')\n"
        "if len(seen.read_text().splitlines()) == 1:\n"
        "    threading.Timer(0.1, begin_again, ('a call', 1.0)).start()\n"
        "    time.sleep(60)\n"
    )
    seen = tmp_path / "seen"
    done = subprocess.run([sys.executable, str(script), str(seen)], timeout=30, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    first, second = seen.read_text().splitlines()
    assert first == second


@pytest.mark.parametrize(
    ("on_stuck", "broken"),
    [
        ("begin_again", "sys.executable = '/nowhere/python'"),
        ("end_process", "structlog.configure(logger_factory=fail)"),
    ],
    ids=["its interpreter is gone", "it cannot be said"],
)
def test_what_hangs_ends_if_it_cannot_begin_again_or_say_so(tmp_path: Path, on_stuck: str, broken: str) -> None:
    """The thread that watches ended of it, and the process went on hanging, watched by nobody."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, time, structlog\n"
        "from tidewheel.log.kafka.watchdog import Watchdog, end_process\n"
        "from tidewheel_services.scheduler.main import begin_again\n"
        "def fail(*_): raise OSError('nobody can read this')\n"
        f"{broken}\n"
        f"with Watchdog(0.1, {on_stuck}).watching('a call'): time.sleep(30)\n"
    )
    done = subprocess.run([sys.executable, str(script)], timeout=20, check=False, capture_output=True)
    assert done.returncode == 70, done.stderr


def test_each_turn_is_a_beat() -> None:
    pulse = Pulse()
    assert pulse() <= pulse()
    assert pulse.beats == 2
