"""What the process that executes a file of DAGs tells the one that asked for it."""

from __future__ import annotations

import msgspec

from tidewheel.definition.mistakes import Mistake


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG as YAML, or the mistakes in it; ``line`` is where it begins in the Python file."""

    source: str
    mistakes: tuple[Mistake, ...] = ()
    line: int = 1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The file's DAGs, or why it could not be executed; ``files`` are those of the project that it imported."""

    dags: tuple[Compiled, ...] = ()
    fault: Mistake | None = None
    files: tuple[str, ...] = ()
