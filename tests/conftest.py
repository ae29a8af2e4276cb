"""What many tests share: one real Kafka broker for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidewheel.testing.kafka_broker import open_broker


@pytest.fixture(scope="session")
def kafka_address() -> Iterator[str]:
    """``host:port`` of a real broker; use a topic prefix of your own."""
    with open_broker(short_lived=True) as address:
        yield address
