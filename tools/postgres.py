"""``make postgres``: a local Postgres in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from pathlib import Path

from tidewheel_services.embedded_postgres import EmbeddedPostgres, PostgresUnavailable


def main() -> int:
    """Run a server and wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path("build/postgres"), help="where its data stay (default build/postgres)"
    )
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with EmbeddedPostgres(arguments.data.resolve()) as server:
            print(f"Postgres is up: TIDEWHEEL_POSTGRES={shlex.quote(server.dsn)} (Ctrl-C stops it)", flush=True)
            stop.wait()
    except PostgresUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
