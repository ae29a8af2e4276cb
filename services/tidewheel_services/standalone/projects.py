"""Whether what a workflow's tasks import lies in the directory that is served, or in a project of its own below it.

A worker imports from one directory, its project. A workflow file further down whose modules lie beside it is of another
project, and each of its Python tasks would fail.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from tidewheel.core.workflow import Celery, Python, Workflow


def stray_project(workflow: Workflow, file: Path, served: Path) -> str:
    """What to do about a workflow whose modules lie beside its ``file`` and not in ``served``; empty: nothing."""
    own = file.parent
    if own == served:
        return ""
    for task in workflow.tasks:
        match task.action:
            case Python(callable=name) | Celery(app=name):
                module = name.partition(":")[0]
                package = module.partition(".")[0]
                if ":" in name and _holds(own, package) and not _holds(served, package):
                    return (
                        f"{workflow.id}: task {task.id} needs the module {module!r}, which is not in {served} "
                        f"but lies beside {file.name}, in a project of its own: tidewheel dev {shlex.quote(str(own))}"
                    )
    return ""


def _holds(directory: Path, package: str) -> bool:
    return (directory / f"{package}.py").is_file() or (directory / package).is_dir()
