"""Nobody changes for good what others in the same process use; ``tests/process_state.py`` looks at what happens."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.sources import PACKAGES, Source, python, report

#: These begin a process, or are one, and may set it up.
PROCESSES = {
    "services/tidewheel_services/process_log.py": "a process's log lines",
    "services/tidewheel_services/worker/container_main.py": "the leash of a container",
    "services/tidewheel_services/worker/main.py": "the limit of open files",
    "services/tidewheel_services/worker/runner_main.py": "runs Python tasks, and undoes what they change",
    "services/tidewheel_services/worker/supervisor_main.py": "starts the processes of tasks",
    "tidewheel/authoring/child.py": "reads one workflow file",
    "tidewheel/testing/simulation/campaign.py": "a season of the simulation",
    "tests/chaos/__main__.py": "the campaign of faults",
    "tests/conftest.py": "the log lines of the suite",
    "tests/e2e/rolling_scheduler.py": "a scheduler of another release",
    "tests/e2e/victim.py": "dies at a step",
    "tests/log/owner_process.py": "an owner that is killed",
    "tests/worker/detached_engine.py": "a container engine",
    "tests/worker/victim.py": "a worker that is killed",
}
#: These put back what they change.
PUT_BACK = {
    "services/tidewheel_services/cli/processes.py": "signals, when a command ends",
    "tests/process_state.py": "what a test has left",
    "tests/services/test_cli_faults.py": "a handler of its own",
    "tests/testing/test_process_state.py": "what it has left behind itself",
    "tidewheel/testing/simulation/season.py": "log lines, after a season",
}
CALLS = {
    "gc.disable",
    "gc.freeze",
    "locale.setlocale",
    "logging.basicConfig",
    "logging.disable",
    "os.chdir",
    "os.putenv",
    "os.umask",
    "random.seed",
    "resource.setrlimit",
    "signal.set_wakeup_fd",
    "signal.signal",
    "socket.setdefaulttimeout",
    "structlog.configure",
    "sys.setrecursionlimit",
    "sys.setswitchinterval",
    "time.tzset",
    "warnings.filterwarnings",
    "warnings.simplefilter",
}
SHARED = ("os.environ", "os.environb", "sys.path", "sys.modules", "sys.meta_path", "sys.argv")
MUTATORS = {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


def changes(source: Source) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Each place that sets something of an imported module or class, or of the process."""
    imported = {
        (name.asname or name.name).partition(".")[0]
        for node in source.nodes()
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    } - {node.arg for node in source.nodes() if isinstance(node, ast.arg)}  # a fixture, where it is used
    for node in source.nodes():
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case ast.Call(func=func) if ast.unparse(func) in CALLS:
                yield node, ast.unparse(func)
                continue
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in MUTATORS:
                if ast.unparse(owner) in SHARED:
                    yield node, f"{ast.unparse(owner)}.{attr}"
                continue
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=name), *_]) if name in imported:
                yield node, f"setattr({name}, …)"
                continue
            case _:
                continue
        for target in targets:
            root = target
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if root is not target and isinstance(root, ast.Name) and root.id in imported:
                yield node, ast.unparse(target)


def test_what_others_use_is_changed_for_a_while_only() -> None:
    report(
        (
            source.at(node, what)
            for source in python(*PACKAGES, "tests")
            if source.name not in PROCESSES and source.name not in PUT_BACK
            for node, what in changes(source)
        ),
        "What the whole process shares is changed by monkeypatch, or for the time of a block.",
    )


def test_who_may_change_it_does() -> None:
    known = {source.name: source for source in python(*PACKAGES, "tests")}
    listed = {*PROCESSES, *PUT_BACK}
    report((name for name in listed if name not in known or not [*changes(known[name])]), "Not needed any more.")


EXAMPLE = """
import os, sys
from shop import till
till.WAIT_S = 0
os.environ['A'] = 'b'
sys.path.insert(0, '')
os.chdir('/')
mine = till.Till()
mine.open = True
"""


def test_such_a_place_is_found() -> None:
    found = [what for _, what in changes(python("tests")[0]._replace(text=EXAMPLE, tree=ast.parse(EXAMPLE)))]
    assert sorted(found) == ["os.chdir", "os.environ['A']", "sys.path.insert", "till.WAIT_S"]
