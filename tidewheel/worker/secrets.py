"""Secrets: resolved on the worker, where the task runs, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidewheel.core.assignment import Secret, Text
from tidewheel.worker.masking import SECRET_CHARS_MIN, Masker


class SecretUnavailable(Exception):
    """A secret is missing or unusable; the message names it and says what to do, and never holds its value."""


class Secrets(Protocol):
    """Where a worker finds secrets. What was resolved is known to ``masker`` before it is handed out."""

    @property
    def masker(self) -> Masker:
        """Masks every secret handed out so far."""

    def resolve(self, name: str) -> str:
        """The value of ``name``. Raises ``SecretUnavailable``."""


class KnownSecrets:
    """Secrets given as a mapping, for services that embed a worker and have their own store."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})
        self.masker = Masker(checked(name, value) for name, value in self._values.items())

    def resolve(self, name: str) -> str:
        """The value of ``name``."""
        value = self._values.get(name)
        if value is None:
            raise SecretUnavailable(f"secret '{name}' is not known to this worker; give it to Worker(secrets=…)")
        return value


def checked(name: str, value: str) -> str:
    """``value``, if it can be kept secret."""
    if len(value) < SECRET_CHARS_MIN:
        raise SecretUnavailable(
            f"secret '{name}' has {len(value)} characters; one shorter than {SECRET_CHARS_MIN} cannot be masked: "
            "use a longer one, or write the value into env if it is no secret"
        )
    return value


def resolve_text(text: Text, secrets: Secrets) -> str:
    """Join the parts of ``text``, secrets resolved."""
    return "".join(secrets.resolve(part.name) if isinstance(part, Secret) else part for part in text)


def resolve_all(texts: Mapping[str, Text], secrets: Secrets) -> dict[str, str]:
    """Resolve each text of an ``env`` or of HTTP headers."""
    return {name: resolve_text(text, secrets) for name, text in texts.items()}
