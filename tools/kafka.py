"""``make kafka``: a local broker in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from tidewheel.testing.kafka_broker import open_broker
from tidewheel.testing.kafka_jars import BrokerUnavailable


def main() -> int:
    """Run a broker and wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9092, help="where clients connect (default 9092)")
    parser.add_argument(
        "--data", type=Path, default=Path("build/kafka"), help="where its data stay (default build/kafka)"
    )
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    print("starting Kafka; the first time its files are fetched", flush=True)
    try:
        with open_broker(arguments.port, arguments.data.resolve()) as address:
            print(f"Kafka is up on {address}: TIDEWHEEL_LOG=kafka://{address} (Ctrl-C stops it)", flush=True)
            stop.wait()
    except BrokerUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
