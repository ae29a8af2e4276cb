"""A worker process with its own little engine, to be killed: runs a shell command and a Python call that never end."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "services")]

from tests.worker.engine import Engine, python, run  # noqa: E402
from tidewheel_services.cli.processes import stop_on_signals  # noqa: E402
from tidewheel_services.worker.main import serve  # noqa: E402

project = Path(sys.argv[1])
(project / "forever.py").write_text(
    "import os, subprocess, time\nfrom pathlib import Path\n"
    "def hang():\n"
    "    child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    "    Path('python.child').write_text(str(child.pid))\n"
    "    Path('python.self').write_text(str(os.getpid()))\n"
    "    time.sleep(1000)\n"
)
engine = Engine()
SHELL = """
setsid sleep 1000 & echo $! > shell.child
echo $$ > shell.self
trap '' TERM
while :; do sleep 0.1; done
"""


def assign() -> None:
    engine.await_welcome("w1")
    engine.assign(run(SHELL))
    engine.assign(python("forever:hang"))


threading.Thread(target=assign, daemon=True).start()
with stop_on_signals() as stop:
    serve(engine.log, {"default": 4}, project, grace_s=0.5, stop_event=stop, name="w1", drain_s=0.5)
for ending in (*engine.endings("t1"), *engine.endings("t2")):
    print(type(ending).__name__, getattr(ending, "kind", ""), flush=True)
