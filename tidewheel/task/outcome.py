"""How an attempt ended, as its executor saw it, and how values and exceptions become that."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import TypeAlias

import msgspec

from tidewheel.core.commands import FailureKind

#: Outputs travel in events; what is larger belongs into a store of the user's, with a reference as the output.
OUTPUT_BYTES_MAX = 64 * 1024
#: A message is for people and travels in an event: the end of a long one says most.
MESSAGE_CHARS_MAX = 8_000
#: Cut to this before it is masked, so far from where the message is cut afterwards that no half of a secret stays.
RAW_CHARS_MAX = 256 * 1024
#: Frames of a traceback that are kept, nearest to the error.
TRACEBACK_FRAMES_MAX = 12


class Succeeded(msgspec.Struct, frozen=True):
    """The user's code ended well; ``output`` is JSON text."""

    output: str | None = None


class Failed(msgspec.Struct, frozen=True):
    """The user's code failed, could not begin, or was lost."""

    kind: FailureKind
    message: str
    exit_code: int | None = None
    http_status: int | None = None


Outcome: TypeAlias = Succeeded | Failed


def outcome_of(value: object) -> Outcome:
    """The outcome of a callable that returned ``value``."""
    if value is None:
        return Succeeded()
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return Failed(
            "output", f"the return value cannot be written as JSON: {error}; return plain values, lists, dicts"
        )
    if len(encoded) > OUTPUT_BYTES_MAX:
        return too_large(len(encoded))
    return Succeeded(encoded.decode())


def outcome_of_json(data: bytes, source: str) -> Outcome:
    """The outcome of a program that left ``data`` as its output; ``source`` says where, for the message."""
    if not data.strip():
        return Succeeded()
    if len(data) > OUTPUT_BYTES_MAX:
        return too_large(len(data))
    try:
        msgspec.json.decode(data)
        return Succeeded(msgspec.json.format(data, indent=-1).decode())
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Failed("output", f"{source} is not JSON: {error}")


def too_large(size: int) -> Failed:
    """The refusal of an output of ``size`` bytes."""
    return Failed(
        "output",
        f"the output has {size} bytes; at most {OUTPUT_BYTES_MAX} are kept: store it elsewhere and return where it is",
    )


def outcome_of_exception(error: BaseException, trace: TracebackType | None = None) -> Failed:
    """The outcome of a callable that raised; ``trace`` is where its traceback begins to be the user's.

    The message is long: it is masked, and then cut, when it is reported.
    """
    start = error.__traceback__ if trace is None else trace
    shown = traceback.TracebackException(type(error), error, start, limit=-TRACEBACK_FRAMES_MAX, compact=True)
    head = trimmed("".join(shown.format_exception_only()).strip(), RAW_CHARS_MAX)
    body = trimmed("".join(shown.format()).strip(), RAW_CHARS_MAX)
    return Failed("exception", f"{head}\n\n{body}")


def trimmed(text: str, chars_max: int) -> str:
    """``text``, its middle left out if it is longer than ``chars_max``; always encodable as UTF-8."""
    if len(text) > chars_max:
        head = chars_max // 4
        text = f"{text[:head]}\n… {len(text) - chars_max} characters left out …\n{text[head - chars_max :]}"
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
