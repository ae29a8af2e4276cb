"""Files of workflows, in YAML or Python, to what they define. Whatever a file holds or does, reading it raises nothing.

A Python file is executed in a process of its own with a time limit: one that crashes, hangs or floods its output hurts
nobody. What counts as such a file is one that names ``tidewheel.authoring``; no other is executed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

import msgspec

from tidewheel.authoring.answer import Answer, Compiled
from tidewheel.definition.load import Loaded, load_files, load_text, refuse
from tidewheel.definition.meant import is_meant
from tidewheel.definition.syntax import FILE_BYTES_MAX

#: Building a DAG takes milliseconds; the rest is for what the file imports.
EXECUTION_S_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_MARK: Final = b"tidewheel.authoring"
_LAST_WORDS_BYTES: Final = 2_000
_DECODER: Final = msgspec.json.Decoder(Answer)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its DAGs, each loaded or with its mistakes, and the files that decide what they are."""

    dags: tuple[Loaded, ...]
    files: tuple[Path, ...]


def is_python(path: Path) -> bool:
    """Whether it is to be executed rather than parsed."""
    return path.suffix == ".py"


def names_dags(path: Path) -> bool:
    """Whether a file found in a directory is meant to define DAGs: Python that names ``tidewheel.authoring``, YAML
    with a workflow's keys, or YAML that cannot be read, which is better told."""
    try:
        with path.open("rb") as stream:
            return _MARK in stream.read() if is_python(path) else is_meant(stream.read(FILE_BYTES_MAX))
    except OSError:
        return not is_python(path)


def project_of(path: Path) -> Path:
    """The directory from which a Python file is imported, if nobody says another: the first without ``__init__.py``."""
    directory = path.resolve().parent
    while (directory / "__init__.py").exists() and directory != directory.parent:
        directory = directory.parent
    return directory


def load_source(path: Path, project: Path, *, seconds: float = EXECUTION_S_MAX) -> Source:
    """Load a file. ``project`` is where workers import from: it gives Python functions their module's name."""
    if not is_python(path):
        return Source(dags=load_files([path]), files=(path,))
    try:
        if _MARK not in path.read_bytes():
            return Source(dags=(), files=(path,))
    except OSError as error:
        return Source(dags=(refuse(str(path), 1, 1, "unreadable", f"cannot be read: {error.strerror}"),), files=(path,))
    try:
        name = module_name(path, project)
    except ValueError as error:
        return Source(dags=(refuse(str(path), 1, 1, "not_importable", str(error)),), files=(path,))
    answer = _execute(path, project.resolve(), name, seconds)
    if isinstance(answer, str):
        return Source(dags=(refuse(str(path), 1, 1, "python_error", answer),), files=(path,))
    files = (path, *(Path(file) for file in answer.files if Path(file) != path.resolve()))
    if (fault := answer.fault) is not None:
        return Source(dags=(refuse(str(path), fault.line, fault.column, fault.code, fault.message),), files=files)
    return Source(dags=tuple(_loaded(path, one) for one in answer.dags), files=files)


def module_name(path: Path, project: Path) -> str:
    """How workers import the file. Raises ``ValueError`` with what to do."""
    try:
        inside = path.resolve().relative_to(project.resolve())
    except ValueError:
        raise ValueError(f"it is not below {project}, from where workers would import it") from None
    parts = inside.with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if not parts or not all(part.isidentifier() for part in parts):
        message = f"'{inside}' cannot be imported: names of modules have letters, digits and underscores only"
        if parts and parts[-1].isidentifier():
            message += f"; name its directory, {path.parent}, instead of {project}"
        raise ValueError(message)
    return ".".join(parts)


def _loaded(path: Path, compiled: Compiled) -> Loaded:
    if compiled.mistakes:
        here = tuple(msgspec.structs.replace(one, file=str(path)) for one in compiled.mistakes)
        return Loaded(file=str(path), mistakes=here, line=compiled.line)
    # Loaded once more from what will be deployed: what a file's process says is not taken on trust.
    return msgspec.structs.replace(load_text(compiled.source, str(path)), line=compiled.line)


def _execute(path: Path, project: Path, name: str, seconds: float) -> Answer | str:
    """The answer of a process that has executed the file, or why there is none."""
    command = [sys.executable, "-P", "-m", "tidewheel.authoring.child", str(path.resolve()), str(project), name]
    search = os.pathsep.join(os.path.abspath(one) for one in sys.path if one)  # noqa: PTH100 (a text is wanted)
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as answered:
        try:
            process = subprocess.Popen(
                command,
                cwd=project,
                env={**os.environ, "PYTHONPATH": search},
                stdin=subprocess.DEVNULL,
                stdout=answered,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be executed: {error}"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"it was still being executed after {seconds:g} s: a file of DAGs must only build them{_last(said)}"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answered.seek(0)
        data = answered.read(ANSWER_BYTES_MAX + 1)
        if len(data) > ANSWER_BYTES_MAX:
            return f"its DAGs have more than {ANSWER_BYTES_MAX} bytes: split the file"
        try:
            return _DECODER.decode(data)
        except msgspec.MsgspecError:
            return f"executing it ended without an answer (exit code {code}){_last(said)}"


def _last(said: IO[bytes]) -> str:
    """The last of what was printed, for a message."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _LAST_WORDS_BYTES))
    words = said.read().decode("utf-8", "replace").strip()
    return f"; its last words: {words.splitlines()[-1][:200]}" if words else ""
