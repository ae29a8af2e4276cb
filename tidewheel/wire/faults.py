"""What goes wrong between messages and bytes."""

from __future__ import annotations


class DecodeError(Exception):
    """Bytes that are no message of ours. ``code`` is for programs, ``reason`` for people: what, where, what is right.

    Codes: ``foreign`` (not our framing), ``unknown_schema``, ``unexpected`` (a message that has no business here),
    ``truncated``, ``trailing``, ``oversized``, ``malformed`` (not Avro or JSON), ``invalid`` (against a rule of ours).
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code
        self.reason = reason


class EncodeError(ValueError):
    """A message that the wire cannot carry: a value out of its type's range, or too large."""
