"""Decoding once what many read: in a simulation the loop, its judges and the projector all read the same records.

The codec itself is what decodes; only the second reader of the same bytes is spared it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import msgspec

from tidewheel.core.events import Recorded
from tidewheel.wire import codec

#: Records remembered: more than what is being read again at any time.
_REMEMBERED = 8_192
#: Who reads records by a name of its own; a module that is not loaded reads nothing.
_READERS = (
    "tidewheel.runtime.recovery",
    "tidewheel.runtime.journal",
    "tidewheel.runtime.intake",
    "tidewheel.runtime.listener.definitions",
    "tidewheel.runtime.witness.proof",
    "tidewheel.testing.world",
    "tidewheel_projections.journal",
)

_decode_event = codec.decode_event
_decode = codec.decode


@lru_cache(maxsize=_REMEMBERED)
def event_in(data: bytes) -> Recorded:
    """The event in a journal record."""
    return _decode_event(data)


@lru_cache(maxsize=_REMEMBERED)
def message_in(data: bytes, partition: int = -1) -> msgspec.Struct:
    """The message in a record that is no event."""
    return _decode(data, partition)


@contextmanager
def decoding_once() -> Iterator[None]:
    """Within it, every reader shares what was decoded."""
    replaced = []
    for name in _READERS:
        module = sys.modules.get(name)
        for attribute, shared in (("decode_event", event_in), ("decode", message_in)):
            own = getattr(module, attribute, None)
            if own in (_decode_event, _decode):
                replaced.append((module, attribute, own))
                setattr(module, attribute, shared)
    try:
        yield
    finally:
        for module, attribute, own in replaced:
            setattr(module, attribute, own)
        event_in.cache_clear()
        message_in.cache_clear()
