"""How large a record may be, the same on every driver, so that what runs embedded also runs on Kafka."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel.log.interface import Append

#: Key, value and headers of one record together. Outputs are capped at 64 KiB and bundles travel by reference, so only
#: snapshots come near. Kafka's topics are created with room for this plus framing (``kafka.topics.MESSAGE_BYTES_MAX``).
RECORD_BYTES_MAX = 1_500_000


def size_of(record: Append) -> int:
    """Bytes of key, value and headers."""
    size = len(record.key) + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value)
    return size


def oversize(records: Iterable[Append]) -> str:
    """What is wrong with the first record over the limit, or nothing."""
    for record in records:
        size = size_of(record)
        if size > RECORD_BYTES_MAX:
            key = record.key[:80].decode("utf-8", "replace")
            return (
                f"a record of {size} bytes for '{record.topic}' (key '{key}') is over the limit of {RECORD_BYTES_MAX}: "
                "put large data into the artifact store and send a reference"
            )
    return ""
