"""Runs one container engine's command, and tells the leash when the container has ended by itself.

The leash is a pipe whose other end ``container.Leash`` watches. It is closed to the engine's command, which may leave
processes behind (Podman's ``conmon``): it breaks when this process ends, whatever ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

#: The engine itself failed; also Docker's and Podman's own meaning.
ENGINE_FAILED = 125
#: What is written to the leash.
ENDED = b"ended"


def main() -> None:
    """``argv`` is the command, and the leash's descriptor behind it."""
    *command, leash = sys.argv[1:]
    # The whole group gets it: the engine passes it on to the container, and this waits for what comes of it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        status = subprocess.Popen(command).wait()
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(ENGINE_FAILED)
    if 0 <= status < ENGINE_FAILED:
        os.write(int(leash), ENDED)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
