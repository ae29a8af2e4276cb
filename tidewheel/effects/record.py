"""A record that only the newest attempt of a task can write, in any ``ConditionalStore``.

The record holds who claimed it last. Each write is on the condition that nothing changed since the claim was checked,
so a newer claim in between, however close, makes an older write fail.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from tidewheel.effects.store import CannotFence, ConditionalStore
from tidewheel.effects.token import StaleAttempt, Token, current_token
from tidewheel.task.context import Attempt

#: Each lost race means that somebody else's write was accepted; so many in one call are no race but a broken store.
TRIES_MAX = 1_000


class _Content(msgspec.Struct, frozen=True):
    """The record as it is stored, in JSON."""

    attempt: int
    #: Different in each write: tells a write of ours, whose answer was lost, from anybody else's.
    write: str
    written: bool = False
    value: msgspec.Raw = msgspec.Raw(b"null")


class FencedRecord:
    """The record ``name`` of a task in a run: one JSON value, which the newest attempt may set as often as it likes.

    Keep it small. Write data under names with the attempt in them, and here the name that counts.
    """

    def __init__(self, store: ConditionalStore, name: str, attempt: Attempt | None = None) -> None:
        """``attempt`` defaults to the one that this code runs for."""
        own = current_token() if attempt is None else attempt
        self._store = store
        self._token = Token(own.dag, own.run_id, own.task, own.attempt)
        self.key = "/".join(_segment(part) for part in (own.dag, own.run_id, own.task, name))

    def claim(self) -> None:
        """Refuse from now on what older attempts write. Raises ``StaleAttempt`` if a newer one has claimed."""
        self._replace(lambda old: (old.written, old.value))

    def put(self, value: object) -> None:
        """Set the value. Raises ``StaleAttempt`` if a newer attempt has claimed; nothing is changed then."""
        encoded = msgspec.Raw(msgspec.json.encode(value))
        self._replace(lambda _: (True, encoded))

    def get(self) -> object:
        """The value, whoever wrote it; None: nobody has."""
        found, _ = self._read()
        return msgspec.json.decode(found.value)

    def once(self, function: Callable[[], object]) -> object:
        """The value, made by ``function`` if no attempt has yet. Raises ``StaleAttempt``.

        All attempts get one value. An attempt that is lost within ``function`` leaves none: then the next one calls it
        again, so what it does outside must bear that.
        """
        self.claim()
        found, _ = self._read()
        if not found.written:
            self.put(function())
            found, _ = self._read()
        return msgspec.json.decode(found.value)

    def _replace(self, change: Callable[[_Content], tuple[bool, msgspec.Raw]]) -> None:
        for _ in range(TRIES_MAX):
            old, version = self._read()
            if old.attempt > self._token.attempt:
                raise StaleAttempt(self._token, old.attempt)
            written, value = change(old)
            new = _Content(self._token.attempt, secrets.token_hex(8), written, value)
            if self._store.put_if(self.key, msgspec.json.encode(new), version) or self._read()[0].write == new.write:
                return
        raise CannotFence(f"{self.key}: {TRIES_MAX} writes were refused although nobody newer has claimed")

    def _read(self) -> tuple[_Content, str | None]:
        found = self._store.get(self.key)
        if found is None:
            return _Content(0, ""), None
        try:
            return msgspec.json.decode(found.data, type=_Content), found.version
        except msgspec.DecodeError as error:
            raise CannotFence(f"{self.key} holds something that is no fenced record: {error}") from error


def _segment(part: str) -> str:
    """``part`` as one segment of a key, whatever is in it."""
    quoted = quote(part, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E") or "%"
