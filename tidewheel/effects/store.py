"""What a store must be able to do so that attempts can be fenced in it: put on a condition, atomically."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class CannotFence(Exception):
    """The store cannot put on a condition: an old attempt could overwrite a newer one's value."""


class Stored(NamedTuple):
    """The value of a key, and the version to name when it is to be replaced."""

    data: bytes
    version: str


class ConditionalStore(Protocol):
    """Values by key, replaced only by whoever has seen the newest one.

    Both methods must be atomic towards other processes, and ``get`` must give what the last accepted ``put_if`` wrote.
    An error of ``put_if`` may leave open whether it was done.
    """

    def get(self, key: str) -> Stored | None:
        """The newest value; None: there is none."""

    def put_if(self, key: str, data: bytes, version: str | None) -> bool:
        """Put if the key still is at ``version`` (None: still has no value). False: it is not, nothing was changed."""
