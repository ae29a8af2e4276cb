"""Secrets of the worker process: from its environment or from files.

``TIDEWHEEL_SECRET_<NAME>`` goes first, then the file ``<name>`` in ``TIDEWHEEL_SECRETS_DIR``. A file is read anew each
time, so a rotated secret needs no restart; a line end at its end is dropped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tidewheel.worker.masking import Masker
from tidewheel.worker.secrets import SecretUnavailable, checked

PREFIX = "TIDEWHEEL_SECRET_"
DIRECTORY = "TIDEWHEEL_SECRETS_DIR"
FILE_BYTES_MAX = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class LocalSecrets:
    """Resolves on this machine."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        directory = self._environment.get(DIRECTORY)
        self._directory = Path(directory) if directory else None
        # All of them, not only those a task asks for: a task may find another's by accident.
        self.masker = Masker(value for name, value in self._environment.items() if name.startswith(PREFIX))

    def resolve(self, name: str) -> str:
        """The value of ``name``. Raises ``SecretUnavailable`` with all places that were looked at."""
        if not _NAME.fullmatch(name):
            raise SecretUnavailable(f"'{name}' is no name of a secret: use letters, digits, '_', '.' and '-'")
        variable = PREFIX + name.upper()
        value = self._environment.get(variable)
        if value is None:
            value = self._read(name, variable)
        self.masker.add(checked(name, value))
        return value

    def _read(self, name: str, variable: str) -> str:
        if self._directory is None:
            raise SecretUnavailable(
                f"secret '{name}' is missing on this worker: set {variable}, or {DIRECTORY} and a file"
            )
        path = self._directory / name
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise SecretUnavailable(f"secret '{name}' is larger than {FILE_BYTES_MAX} bytes")
            text = path.read_text("utf-8")
        except FileNotFoundError:
            raise SecretUnavailable(
                f"secret '{name}' is missing on this worker: neither {variable} nor a file in {DIRECTORY} is there"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise SecretUnavailable(f"secret '{name}' cannot be read: {type(error).__name__}") from None
        return text.removesuffix("\n").removesuffix("\r")
