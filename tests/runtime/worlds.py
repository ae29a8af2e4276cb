"""What tests of the whole engine under virtual time say again and again."""

from __future__ import annotations

from typing import Any

from tidewheel.core import events as e
from tidewheel.core.workflow import Run, Task
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import DEAD_LETTERS
from tidewheel.runtime.checker import check_log
from tidewheel.testing.world import World
from tidewheel.wire.codec import decode
from tidewheel.wire.messages import DeadLetter

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def task(id_: str, *needs: str, **more: Any) -> Task:
    """A shell task."""
    return Task(id=id_, action=Run(command="true"), needs=needs, **more)


def a_world(**more: Any) -> World:
    """One with real expressions."""
    return World(CelEvaluator(), **more)


def restart(world: World, name: str = "scheduler-0") -> None:
    """A scheduler dies and comes back with an empty memory."""
    world.kill_scheduler(name)
    world.start_scheduler(name)


def ends(world: World) -> dict[str, str]:
    """How each run ended; fails if one did so twice."""
    found: dict[str, str] = {}
    for event in world.events(e.RunSucceeded, e.RunFailed, e.RunCancelled):
        assert isinstance(event, e.RunSucceeded | e.RunFailed | e.RunCancelled)
        assert event.run_id not in found, "a run ended twice"
        found[event.run_id] = type(event).__name__
    return found


def dead_letters(world: World) -> list[DeadLetter]:
    """All there are."""
    found = []
    for partition in range(world.log.partitions):
        for record in world.log.reader({(DEAD_LETTERS, partition): 0}).read(1_000, 0):
            assert record.value is not None
            letter = decode(record.value)
            assert isinstance(letter, DeadLetter)
            found.append(letter)
    return found


def ends_of(world: World, dag: str) -> dict[str, str]:
    """How the runs of one DAG ended."""
    found = world.events(e.RunSucceeded, e.RunFailed, e.RunCancelled)
    return {event.run_id: type(event).__name__ for event in found if isinstance(event, e.RunEvent) and event.dag == dag}


def started_runs(world: World) -> list[str]:
    """Ids in the order in which the runs started."""
    return [event.run_id for event in world.events(e.RunStarted) if isinstance(event, e.RunStarted)]


def nothing_is_left(world: World) -> None:
    """The journal proves itself, and all has ended: no attempt lives and no pool holds a slot."""
    assert check_log(world.log, settled=True).violations == ()
