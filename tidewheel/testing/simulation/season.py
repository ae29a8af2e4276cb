"""One seed, played: trouble, then calm, then rest, and the judges' word at each."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterable, Iterator
from random import Random
from unittest import mock

import msgspec
import structlog

from tidewheel.core import commands as c
from tidewheel.runtime import scheduler as loop
from tidewheel.testing.simulation.authors import DAGS, POOLS
from tidewheel.testing.simulation.decoding import decoding_once
from tidewheel.testing.simulation.judges import Restarts, judge_inputs, judge_journal, judge_punctuality, judge_rest
from tidewheel.testing.simulation.mishaps import Mishaps
from tidewheel.testing.simulation.outsiders import Make
from tidewheel.testing.simulation.people import live_runs
from tidewheel.testing.simulation.services import URLS
from tidewheel.testing.simulation.world import WORKERS, MakeReadModel, TroubledWorld
from tidewheel.testing.world import START_MS

#: So much time must be enough for the next run to end once the trouble has: it may have a few tasks one after the
#: other, each with instances that wait one after the other for 15 minutes.
_REST_MS_MAX = 15_000_000
#: Everybody acts at least so often. After half a lease's length without a turn, a scheduler forgives absences.
_STRIDE_MS = 14_000
#: Long enough for two slots of the quickest schedule.
_WATCHED_MS = 70_000
#: Whoever was promised a slot by mistake gives it back within a worker's term.
_RETURN_MS = 70_000


class Finding(msgspec.Struct, frozen=True):
    """A violation: the promise was broken, and a judge saw it at this step."""

    seed: int
    step: int
    what: str
    #: No judge's word: the simulation itself was cut short by an exception.
    raised: bool = False


class Season(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed came to. ``steps`` counts those of the trouble."""

    seed: int
    steps: int
    events: int
    runs: int
    virtual_ms: int
    wall_s: float
    faults: dict[str, int]
    findings: tuple[Finding, ...]
    #: A hash over the last chain of every journal partition: two seasons with the same one are the same.
    journal: str


def play(
    seed: int,
    steps: int,
    *,
    faults: bool = True,
    read_model: MakeReadModel | None = None,
    waiter: Make | None = None,
) -> Season:
    """The same seed, steps and code give the same season, in any process."""
    begun = time.perf_counter()
    rng = Random(seed)
    batch = rng.choice([1, 4, 500])
    with decoding_once(), mock.patch.object(loop, "BATCH_RECORDS", batch):
        world = TroubledWorld(rng.randrange(2**63), faults=faults, read_model=read_model, waiter=waiter)
        world.mishap = Mishaps(world, faults=faults)
        raised: list[Finding] = []
        try:
            _play(world, steps)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{error!r} at {where.filename.rpartition('/')[2]}:{where.lineno} in {where.name}"
            raised.append(Finding(seed, world.steps, what, raised=True))
    return Season(
        seed=seed,
        steps=min(world.steps, steps),
        events=world.follower.events,
        runs=len(world.follower.created),
        virtual_ms=world.now - START_MS,
        wall_s=time.perf_counter() - begun,
        faults=dict(sorted(world.faults.items())),
        findings=(*(Finding(seed, step, what) for step, what in world.violations), *raised),
        journal=world.follower.digest(),
    )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """What the engine would warn of is what a simulation is made of."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        yield
    finally:
        structlog.configure(**before)


def _play(world: TroubledWorld, steps: int) -> None:
    restarts = Restarts(world)

    def sample() -> None:
        _note(world, restarts.judge(snapshots=world.random.random() < 0.05))
        if world.read_model is not None and world.random.random() < 0.02:
            _note(world, _differences(world))

    world.sample = sample
    world.play(steps)
    if world.violations:
        return
    _calm(world)
    world.advance(_WATCHED_MS, step_ms=_STRIDE_MS)
    _note(world, judge_punctuality(world))
    _retire(world)
    left, since = _live(world), world.now
    while left and world.now - since < _REST_MS_MAX and not world.violations:
        world.advance(2 * _STRIDE_MS, step_ms=_STRIDE_MS)
        _note(world, world.follower.overdue())
        before, left = left, _live(world)
        if left != before:
            since = world.now
    world.advance(_RETURN_MS, step_ms=_STRIDE_MS)
    _note(world, judge_rest(world))
    _note(world, judge_inputs(world))
    _note(world, world.follower.triggers.judge_runs())
    _note(world, judge_journal(world))
    _note(world, restarts.judge(snapshots=True))
    _note(world, _differences(world))


def _note(world: TroubledWorld, findings: Iterable[str]) -> None:
    for finding in findings:
        world.violate(finding)


def _differences(world: TroubledWorld) -> Iterator[str]:
    if world.read_model is not None:
        difference = world.read_model.difference()
        if difference:
            yield f"the read model is not what a rebuild gives: {difference}"


def _calm(world: TroubledWorld) -> None:
    """The trouble is over: everybody is there, nothing is paused or away, and all clocks are right."""
    world.trouble, world.calm_at = False, world.now
    world.disarm()
    for name in world.names:
        world.back(name)
    for name in world.makes:
        world.start_outsider(name)
    for process in world.processes:
        process.skew_ms = 0
    for name in WORKERS:
        world.hire(name)
    for pool, slots in POOLS.items():
        world.send(c.ConfigurePool(pool=pool, slots=slots))
    for dag in DAGS:
        world.send(c.UnpauseDag(dag=dag))
    world.settle()
    _note(world, world.follower.overdue())
    _note(world, world.follower.triggers.judge())
    for url in URLS:
        world.services.turn(url, "up")
    # Their schedules are new: nobody has been woken for their slots before.
    for dag in DAGS:
        world.author(dag)
    world.settle()


def _retire(world: TroubledWorld) -> None:
    """Nothing new begins."""
    world.retired = True
    for dag in DAGS:
        for process in world.processes:
            for run_id in live_runs(process.shards.values(), dag):
                if world.random.random() < 0.5:
                    world.send(c.CancelRun(dag=dag, run_id=run_id, reason="retired"))
        world.author(dag)
        world.send(c.UnpauseDag(dag=dag))
    world.settle()


def _live(world: TroubledWorld) -> int:
    """How many runs live."""
    return sum(len(live_runs(process.shards.values(), dag)) for process in world.processes for dag in DAGS)
