"""Nothing is forgotten: each command is decided, each event folded and known by its schema, each core module tested."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_args

import msgspec

from tests.tidy.sources import Source, python, report
from tidewheel.core import commands, events, mail
from tidewheel.core.decide import DECISIONS
from tidewheel.core.fold import FOLDS
from tidewheel.wire import catalog, messages

COMMANDS = set(get_args(commands.DagCommand | commands.PoolCommand))
EVENTS = set(get_args(events.AnyEvent))


def names(kinds: set[type]) -> list[str]:
    return sorted(kind.__name__ for kind in kinds)


def leaves(base: type) -> set[type]:
    """Classes that nothing is derived from: those that messages are made of."""
    below: list[type] = base.__subclasses__()
    return {base} if not below else set().union(*(leaves(kind) for kind in below))


def test_the_unions_are_complete() -> None:
    """A class that is in no union would never be checked by ``assert_never``, nor get a schema."""
    assert names(leaves(commands.Command)) == names(COMMANDS)
    assert names(leaves(events.Event)) == names(EVENTS)
    assert names(leaves(mail.Mail)) == names(set(get_args(mail.AnyMail)))


def test_every_command_is_decided_and_every_event_folded() -> None:
    assert names(set(DECISIONS)) == names(COMMANDS)
    assert names(set(FOLDS)) == names(EVENTS)


def test_everything_that_travels_has_a_published_schema() -> None:
    beside = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)}
    travelling = (COMMANDS - set(commands.TIMERS)) | EVENTS | set(get_args(mail.AnyMail)) | (beside - {msgspec.Struct})
    assert names({kind for kinds in catalog.FOLDERS.values() for kind in kinds}) == names(travelling)
    report((kind.__name__ for kind in travelling if catalog.current(kind) is None), "It has no published schema.")


def test_messages_are_frozen_and_by_keyword() -> None:
    report(
        (
            kind.__name__
            for kind in COMMANDS | EVENTS | set(get_args(mail.AnyMail))
            if not (kind.__struct_config__.frozen and kind.__match_args__ == ())
        ),
        "A message is frozen=True, kw_only=True.",
    )


def imported(source: Source) -> set[str]:
    """Full names of the modules, and of what is taken from them, that a file imports."""
    found = set()
    for node in source.nodes():
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def passed_on() -> Iterator[tuple[str, str]]:
    """Names that the core's packages pass on from their modules: ``tidewheel.core.decide.Decision`` and where it is."""
    for source in python("tidewheel/core"):
        package = source.name.removesuffix("/__init__.py").replace("/", ".")
        for node in source.tree.body if source.path.stem == "__init__" else []:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield f"{package}.{alias.name}", node.module


def test_every_core_module_has_its_test() -> None:
    """By its name (``tests/core/test_<noun>.py`` for ``core/…/<noun>.py``), or by a test that imports it.

    The playbook (``tidewheel.testing``) counts as a test: the core's tests are written in it.
    """
    tests = python("tests") + python("tidewheel/testing")
    by_name = {source.path.stem for source in tests if source.name.startswith("tests/core/")}
    by_import: set[str] = set().union(*(imported(source) for source in tests))
    by_import |= {module for name, module in passed_on() if name in by_import}
    report(
        (
            f"{source.name}: no tests/core/test_{source.path.stem}.py, and no test imports it"
            for source in python("tidewheel/core")
            if source.path.stem != "__init__"
            and f"test_{source.path.stem}" not in by_name
            and source.name.removesuffix(".py").replace("/", ".") not in by_import
        ),
        "A module of the core is tested.",
    )
