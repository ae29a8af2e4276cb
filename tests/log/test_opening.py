"""Opening a log by URL, and what a wrong one is answered."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tidewheel.log.interface import LogMisconfigured, LogUnavailable
from tidewheel.log.memory import MemoryLog
from tidewheel.log.opening import open_log
from tidewheel.log.sqlite import SqliteLog


def test_memory() -> None:
    assert isinstance(open_log("memory:"), MemoryLog)
    assert open_log("memory:?partitions=7").partitions == 7


def test_sqlite(tmp_path: Path) -> None:
    log = open_log(f"sqlite://{tmp_path}/a%20log.db?partitions=3")
    assert isinstance(log, SqliteLog)
    assert log.partitions == 3
    log.create_topics()
    assert (tmp_path / "a log.db").exists()
    log.close()


@pytest.mark.kafka
def test_kafka(kafka_address: str) -> None:
    log = open_log(f"kafka://{kafka_address}?prefix=open.&partitions=3")
    assert log.partitions == 3
    log.create_topics()
    assert open_log(f"kafka://{kafka_address}?prefix=open.").partitions == 3
    log.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "names no known log"),
        ("redis://x:1", "names no known log: expected kafka://host:port, sqlite"),
        ("127.0.0.1:9092", "names no known log"),
        ("kafka://", "'' is not host:port"),
        ("kafka://broker", "'broker' is not host:port"),
        ("kafka://a:9092,b", "'b' is not host:port"),
        ("kafka://a:0", "'a:0' is not host:port"),
        ("kafka://a:9092/topic", "'/topic' has no meaning"),
        ("kafka://a:9092?prefix=my topics", "may only have letters"),
        ("kafka://a:9092?partitions=0", "partitions=0 is not a number from 1"),
        ("kafka://a:9092?partitions=many", "partitions=many is not a number from 1"),
        ("kafka://a:9092?partition=4", "unknown option 'partition'"),
        ("kafka://a:9092?prefix", "malformed"),
        ("kafka://[::1", "malformed"),
        ("sqlite://log.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///x.db?prefix=a", "unknown option 'prefix'"),
        ("memory:?x=1", "unknown option 'x'"),
    ],
)
def test_a_bad_url_is_explained(url: str, says: str) -> None:
    with pytest.raises(LogMisconfigured) as refused:
        open_log(url)
    assert says in str(refused.value)


def test_no_broker_is_told_in_bounded_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(LogUnavailable, match=rf"Kafka at 127\.0\.0\.1:{port} .*`make kafka`"):
            open_log(f"kafka://127.0.0.1:{port}")
        assert time.monotonic() - begun < 20
