"""A record is written in the oldest version that can say all of it, so that processes of the release before read it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tidewheel.core.events import DagPaused
from tidewheel.core.mail import WorkerWelcome
from tidewheel.wire import catalog
from tidewheel.wire.catalog import Version
from tidewheel.wire.codec import GENESIS, decode, decode_event, encode, encode_event
from tidewheel.wire.messages import Snapshot

OLDER = bytes(7) + b"\x01"


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Versions before today's: ``DagPaused`` without reason, ``WorkerWelcome`` with a field that is gone."""
    found = dict(catalog.versions())
    paused = next(version for version in found.values() if version.message is DagPaused)
    fields = tuple(field for field in paused.fields if field.name != "reason")
    older = Version(name=paused.name, fingerprint=OLDER, fields=fields, message=DagPaused)
    welcome = next(version for version in found.values() if version.message is WorkerWelcome)
    gone = msgspec.structs.replace(
        welcome, fingerprint=bytes(7) + b"\x02", fields=(*welcome.fields, catalog.Field("gone", "string"))
    )
    versions = {OLDER: older, gone.fingerprint: gone, **found}
    monkeypatch.setattr(catalog, "versions", lambda: versions)
    for cache in ("_writers", "_event_writers", "_readers", "_event_readers"):
        monkeypatch.setattr(f"tidewheel.wire.codec.{cache}", {})
    catalog.current.cache_clear()
    yield
    catalog.current.cache_clear()


def written(event: DagPaused) -> bytes:
    return encode_event(event, seq=1, shard_seq=1, writer=1, cause="timer", previous=GENESIS)[0]


def test_what_is_not_said_is_not_written() -> None:
    event = DagPaused(at=5, dag="d", actor="user:ann")
    assert written(event)[2:10] == OLDER
    assert decode_event(written(event)).event == event


def test_what_is_said_is_written_in_the_version_that_knows_it() -> None:
    event = DagPaused(at=5, dag="d", actor="user:ann", reason="for a while")
    newest = catalog.current(DagPaused)
    assert newest is not None
    assert written(event)[2:10] == newest.fingerprint != OLDER
    assert decode_event(written(event)).event == event


def test_a_version_with_a_field_that_is_gone_is_only_read() -> None:
    message = WorkerWelcome(receiver="w1", partition=2, pool="default", term_ms=60_000)
    assert len(catalog.writable(WorkerWelcome)) == 1
    assert decode(encode(message), 2) == message


def test_snapshots_are_written_as_today() -> None:
    assert len(catalog.writable(Snapshot)) == 1
