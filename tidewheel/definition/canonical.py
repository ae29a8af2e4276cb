"""The canonical form of a workflow and its version, the hash of that form."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from tidewheel.core.workflow import Concurrency, Retry, Workflow

#: A definition travels in one record, of at most one MiB with what surrounds it.
CANONICAL_BYTES_MAX: Final = 900_000
_VERSION_LENGTH: Final = 16
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(Workflow)


class CanonicalError(ValueError):
    """The text is not a workflow in canonical form."""


def canonical_json(workflow: Workflow) -> str:
    """JSON with sorted keys and without defaults: equal workflows have equal texts."""
    plain: dict[str, Any] = msgspec.to_builtins(workflow)
    # msgspec leaves a struct's default out only if it is the very same object.
    if workflow.concurrency == Concurrency():
        plain.pop("concurrency", None)
    for task, written in zip(workflow.tasks, plain["tasks"], strict=True):
        if task.retry == Retry():
            written.pop("retry", None)
    return _ENCODER.encode(plain).decode("utf-8")


def version_of(workflow: Workflow) -> str:
    """The first 16 hexadecimal digits of the canonical form's SHA-256."""
    return hashlib.sha256(canonical_json(workflow).encode("utf-8")).hexdigest()[:_VERSION_LENGTH]


def parse_canonical(text: str | bytes) -> Workflow:
    """The workflow back. Raises ``CanonicalError``."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CanonicalError(f"not a workflow in canonical form: {error}") from error
