"""What a network between a scheduler and its broker can do unnoticed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewheel.log.interface import LogUnavailable
from tidewheel.log.kafka import KafkaLog
from tidewheel.testing.kafka_broker import KafkaBroker
from tidewheel.testing.log_contract.driver import PARTITIONS, command, owns_all, poll_until, send, texts
from tidewheel.testing.tcp_proxy import TcpProxy

pytestmark = pytest.mark.kafka

#: Half of what librdkafka waits for an answer if nobody tells it otherwise.
PATIENCE_S = 30.0


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with TcpProxy(kafka=True) as found:
        yield found


@pytest.fixture
def broker(proxy: TcpProxy, tmp_path: Path) -> Iterator[KafkaBroker]:
    port = proxy.listen()
    with KafkaBroker(data=tmp_path, short_lived=True, advertised=port) as found:
        proxy.servers[port] = ("127.0.0.1", found.proxied_port)
        yield found


def test_connections_that_died_unnoticed_are_given_up_soon(proxy: TcpProxy, broker: KafkaBroker) -> None:
    prefix = f"network{os.getpid()}."
    direct = KafkaLog(broker.address, prefix, PARTITIONS)
    direct.create_topics()
    log = KafkaLog(f"127.0.0.1:{next(iter(proxy.servers))}", prefix, PARTITIONS)
    owner = log.owner("a")
    poll_until(owner, owns_all)
    assert proxy.half_open() > 0
    begun = time.monotonic()
    send(direct, command("in"))
    found: list[str] = []
    while not found:
        assert time.monotonic() - begun < PATIENCE_S, "the owner still listens to a dead connection"
        try:
            found = texts(owner.poll(100, 1.0).records)
        except LogUnavailable:
            continue
    assert found == ["in"]
    log.close()
    direct.close()
