"""The process in which a file of DAGs is executed: ``argv`` is the file, the project's directory and the module's name.

It answers on what was its standard output with one ``Answer`` as JSON. What the file prints goes to standard error.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

import msgspec

from tidewheel.authoring.answer import Answer, Compiled
from tidewheel.authoring.dags import collecting
from tidewheel.definition.mistakes import Mistake


def main() -> None:
    """Execute, compile, answer."""
    answers = os.dup(1)
    os.dup2(2, 1)
    file, project, name = sys.argv[1:]
    sys.argv[:] = [file]
    sys.path.insert(0, project)
    answer = _answer(file, project, name)
    with os.fdopen(answers, "wb") as stream:
        stream.write(msgspec.json.encode(answer))
    # Threads that the file has left running must not hold it up.
    os._exit(0)


def _answer(file: str, project: str, name: str) -> Answer:
    fault: Mistake | None = None
    with collecting(file) as dags:
        try:
            _execute(file, name)
        except SyntaxError as error:
            fault = _syntax_mistake(file, error)
        except BaseException as error:
            fault = _mistake(file, error)
    if fault is not None:
        return Answer(fault=fault, files=_files(project))
    loaded = [(dag.compile(), dag.place.line) for dag in dags]
    compiled = tuple(Compiled(source=one.source, mistakes=one.mistakes, line=line) for one, line in loaded)
    return Answer(dags=compiled, files=_files(project))


def _execute(file: str, name: str) -> ModuleType:
    """As an import would, but always from the source: what is cached may be of the same second."""
    if "." in name:
        importlib.import_module(name.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "the file ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(Path(file).read_bytes(), file, "exec"), module.__dict__)
    return module


def _files(project: str) -> tuple[str, ...]:
    """The project's files that were imported."""
    named = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return tuple(sorted(file for file in named if isinstance(file, str) and file.startswith(project + os.sep)))


def _syntax_mistake(file: str, error: SyntaxError) -> Mistake:
    if error.filename != file:
        return _mistake(file, error)
    return Mistake(file, error.lineno or 1, max(error.offset or 1, 1), "syntax", f"not Python: {error.msg}")


def _mistake(file: str, error: BaseException) -> Mistake:
    """An exception, placed at the innermost line of the file that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename == file]
    line, column = (ours[-1].lineno or 1, (ours[-1].colno or 0) + 1) if ours else (1, 1)
    message = "".join(traceback.format_exception_only(error)).strip()
    where = ""
    if ours and frames[-1].filename != file and not frames[-1].filename.startswith(str(Path(__file__).parent)):
        where = f" (raised in {frames[-1].filename}:{frames[-1].lineno})"
    return Mistake(file, line, column, "python_error", f"{message}{where}")


if __name__ == "__main__":
    main()
