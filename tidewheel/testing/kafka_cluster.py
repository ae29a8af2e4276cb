"""Three brokers that replicate, of which any one may be killed: what production runs, on one machine.

Topics made on it get three replicas of which two must have every record, as Tidewheel asks for where it finds three.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidewheel.testing.kafka_broker import KafkaBroker, free_port


def replicated(
    data: Path, size: int = 3, *, advertised: Sequence[int] = (), short_lived: bool = False
) -> list[KafkaBroker]:
    """Brokers, not started, their data kept under ``data``; ``advertised`` are the ports of proxies, one for each."""
    quorum = {node: free_port() for node in range(1, size + 1)}
    return [
        KafkaBroker(data=data / str(node), short_lived=short_lived, advertised=port, node=node, quorum=quorum)
        for node, port in zip(quorum, advertised or [0] * size, strict=True)
    ]


def start_all(brokers: Sequence[KafkaBroker]) -> None:
    """Start them together: none answers before most are there."""
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_until_up()
