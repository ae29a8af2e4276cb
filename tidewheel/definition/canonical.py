"""The canonical form of a workflow and its version, the hash of that form."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Final

import msgspec

from tidewheel.core.workflow import Workflow

#: A definition travels in one record, of at most one MiB with what surrounds it.
CANONICAL_BYTES_MAX: Final = 900_000
_VERSION_LENGTH: Final = 16
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(Workflow)


class CanonicalError(ValueError):
    """The text is not a workflow in canonical form."""


def canonical_json(workflow: Workflow) -> str:
    """JSON with sorted keys and without defaults: equal workflows have equal texts."""
    return _ENCODER.encode(_spare(workflow)).decode("utf-8")


def _spare(value: Any) -> Any:
    """Structs as mappings without what is as it would be anyway. msgspec itself omits a default only if it is the very
    same object: then ``pool: default`` would be another version than no word about the pool."""
    match value:
        case msgspec.Struct():
            tag = value.__struct_config__.tag
            plain: dict[str, Any] = {} if tag is None else {str(value.__struct_config__.tag_field): tag}
            for name, written, default in _fields(type(value)):
                found = getattr(value, name)
                if found is not default and found != default:
                    plain[written] = _spare(found)
            return plain
        case tuple():
            return [_spare(one) for one in value]
        case dict():
            return {key: _spare(one) for key, one in value.items()}
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """Name, name in JSON and default of each field."""
    return [
        (one.name, one.encode_name, one.default_factory() if callable(one.default_factory) else one.default)
        for one in msgspec.structs.fields(kind)
    ]


def version_of(workflow: Workflow) -> str:
    """The first 16 hexadecimal digits of the canonical form's SHA-256."""
    return hashlib.sha256(canonical_json(workflow).encode("utf-8")).hexdigest()[:_VERSION_LENGTH]


def parse_canonical(text: str | bytes) -> Workflow:
    """The workflow back. Raises ``CanonicalError``."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CanonicalError(f"not a workflow in canonical form: {error}") from error
