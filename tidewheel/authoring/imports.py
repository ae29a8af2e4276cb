"""Whether a worker will find the Python that tasks name: looked for in the project, and executed by nobody.

None of it is a mistake of a file: a worker may have other packages, or another project. So it is told as a warning.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidewheel.authoring.files import is_python
from tidewheel.core.nearest import did_you_mean
from tidewheel.core.workflow import Action, Celery, Python
from tidewheel.definition.load import Loaded
from tidewheel.definition.mistakes import Mistake


def check_imports(loaded: Iterable[Loaded], project: Path) -> list[Mistake]:
    """What the workflows call and ``project``, from where workers import, does not have; each where it stands.

    Workflows in Python are not judged: their functions are objects that were there.
    """
    found = [
        Mistake(one.file, *_place(one, name), code, message)
        for one in loaded
        if one.workflow is not None and not is_python(Path(one.file))
        for name in dict.fromkeys(map(_imported, (task.action for task in one.workflow.tasks)))
        for code, message in _missing(name, project, Path(one.file))
    ]
    return sorted(found)


def _imported(action: Action) -> str:
    match action:
        case Python(callable=name) | Celery(app=name):
            return name
    return ""


def _missing(name: str, project: Path, file: Path) -> Iterator[tuple[str, str]]:
    module, colon, attribute = name.partition(":")
    if not colon:
        # Nothing, or a name that an embedded worker has registered.
        return
    if not _is_below(project, module):
        if not _is_installed(module.partition(".")[0], project):
            where = f"{module.replace('.', '/')}.py"
            message = f"there is no {where} below {project}, from where workers import '{module}'"
            beside = [directory for directory in file.parents if _is_below(directory, module)]
            hint = f"; {beside[0]} has it: name that directory instead, or as --project" if beside else ""
            yield "unknown_module", message + hint
        return
    source = _source_of(project, module)
    names = None if source is None else _names_of(source)
    first = attribute.partition(".")[0]
    if names is not None and first not in names:
        yield "unknown_callable", f"{source} defines no '{first}'{did_you_mean(first, names)}"


def _is_below(directory: Path, module: str) -> bool:
    """Whether it can be imported from there: a file, compiled or not, or a directory, with a file of its own or not."""
    path = directory.joinpath(*module.split("."))
    return path.is_dir() or any(path.parent.glob(f"{path.name}.*"))


def _source_of(directory: Path, module: str) -> Path | None:
    path = directory.joinpath(*module.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _is_installed(package: str, project: Path) -> bool:
    """Whether the package is to be had here, and not by the project, which would go before it."""
    try:
        return importlib.util.find_spec(package) is not None and not (project / package).exists()
    except (ImportError, ValueError):
        return False


def _names_of(path: Path) -> set[str] | None:
    """What the module binds at its top level; None if that cannot be told without executing it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in aliases)
    # A star brings names that stand elsewhere, and `__getattr__` any.
    return None if names & {"*", "__getattr__"} else names


def _place(loaded: Loaded, name: str) -> tuple[int, int]:
    """Line and column of the name in the file; of the workflow, if it does not stand there as it is."""
    for number, line in enumerate(loaded.source.splitlines(), 1):
        if (column := line.find(name)) >= 0:
            return number, column + 1
    return loaded.line, 1
