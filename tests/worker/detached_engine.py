"""A container engine for tests, as far as a worker can tell: `run` starts a command outside of the caller's reach.

A "container" is a process of this machine in a session of its own, which outlives the command that started it, as
those of Docker do; `rm` kills it. The image's name is not looked at, volumes are directories of this machine. Programs
are those of this machine, and before them those in the directory ENGINE_PROGRAMS, as if the image had brought them.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["ENGINE_STATE"])


def run(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rm", action="store_true")
    for option in ("name", "pull", "workdir", "user", "network", "memory", "cpus", "entrypoint"):
        parser.add_argument(f"--{option}")
    for option in ("volume", "label", "env"):
        parser.add_argument(f"--{option}", action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    if given.image == "missing":
        sys.stderr.write("no such image: missing\n")
        return 125
    brought = os.environ.get("ENGINE_PROGRAMS")
    env = {"PATH": f"{brought}:/usr/bin:/bin" if brought else "/usr/bin:/bin"}
    for variable in given.env:
        name, equals, value = variable.partition("=")
        env[name] = value if equals else os.environ[name]
    place = next(volume.partition(":")[0] for volume in given.volume if volume.endswith(":/tidewheel"))
    env["TIDEWHEEL_OUTPUT"] = env["TIDEWHEEL_OUTPUT"].replace("/tidewheel", place)
    command = [given.entrypoint, *given.command] if given.entrypoint else given.command
    # What runs can be removed by its name from its first moment on.
    named = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(STATE / given.name), *command]
    child = subprocess.Popen(named, env=env, start_new_session=True)
    (STATE / "arguments").write_text("\n".join(sys.argv[1:]))
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(child.pid, signal.SIGTERM))
    status = child.wait()
    (STATE / given.name).unlink(missing_ok=True)
    return status if status >= 0 else 128 - status


def remove(name: str) -> int:
    try:
        os.killpg(int((STATE / name).read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    (STATE / name).unlink(missing_ok=True)
    with (STATE / "removed").open("a") as removed:
        removed.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["version"]:
            sys.exit(0)
        case ["run", *words]:
            sys.exit(run(words))
        case ["ps", *_]:
            print("\n".join(file.name for file in STATE.glob("tidewheel-*")), end="")
        case ["rm", *_, name]:
            sys.exit(remove(name))
        case _:
            sys.exit(f"unknown command: {sys.argv[1:]}")
