"""Many seeds, on several cores: what they came to, and how to play again what failed."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

import msgspec

from tidewheel.testing.simulation.outsiders import Make
from tidewheel.testing.simulation.season import Finding, Season, play, quietly
from tidewheel.testing.simulation.world import MakeReadModel

#: Seeds that one process plays before it reports.
_CHUNK = 8

#: Puts a bug into the engine for as long as it is open. Named at the top of a module: other processes look it up.
Plant: TypeAlias = Callable[[], AbstractContextManager[None]]


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What to play."""

    seeds: range
    steps: int
    faults: bool = True
    read_model: MakeReadModel | None = None
    #: It looks after what tasks wait for outside; it needs the read model.
    waiter: Make | None = None
    plant: Plant | None = None
    #: Enough is known once one seed has failed.
    stop_at_first: bool = False


class Tally:
    """What has been played so far."""

    def __init__(self) -> None:
        self.seeds = 0
        self.steps = 0
        self.events = 0
        self.runs = 0
        self.virtual_ms = 0
        self.faults: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self._begun = time.monotonic()

    @property
    def wall_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun

    def add(self, season: Season) -> None:
        """One more seed."""
        self.seeds += 1
        self.steps += season.steps
        self.events += season.events
        self.runs += season.runs
        self.virtual_ms += season.virtual_ms
        self.faults.update(season.faults)
        self.findings += season.findings


def run_campaign(campaign: Campaign, *, jobs: int = 1, progress: Callable[[Tally], None] | None = None) -> Tally:
    """Play all seeds in ``jobs`` processes (1: in this one). ``progress`` is called after each few."""
    tally = Tally()
    for seasons in _in_one(campaign) if jobs == 1 else _in_many(campaign, jobs):
        for season in seasons:
            tally.add(season)
        if progress is not None:
            progress(tally)
        if campaign.stop_at_first and tally.findings:
            break
    tally.findings.sort(key=lambda finding: (finding.seed, finding.step))
    return tally


def _play_all(campaign: Campaign, seeds: Iterable[int]) -> Iterator[Season]:
    with quietly(), _collecting_between(), nullcontext() if campaign.plant is None else campaign.plant():
        for seed in seeds:
            yield play(
                seed,
                campaign.steps,
                faults=campaign.faults,
                read_model=campaign.read_model,
                waiter=campaign.waiter,
            )
            gc.collect()


@contextmanager
def _collecting_between() -> Iterator[None]:
    """A season lives until its end: to look for garbage in it is a tenth of its time."""
    collects = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()


def _play_chunk(campaign: Campaign, seeds: range) -> list[Season]:
    return list(_play_all(campaign, seeds))


def _in_one(campaign: Campaign) -> Iterator[Sequence[Season]]:
    for season in _play_all(campaign, campaign.seeds):
        yield [season]


def _in_many(campaign: Campaign, jobs: int) -> Iterator[Sequence[Season]]:
    chunks = iter([campaign.seeds[at : at + _CHUNK] for at in range(0, len(campaign.seeds), _CHUNK)])
    # Not forked: the parent may have threads, of a test's servers for example.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            waiting: set[Future[list[Season]]] = set()
            while True:
                while len(waiting) < 2 * jobs and (chunk := next(chunks, None)) is not None:
                    waiting.add(pool.submit(_play_chunk, campaign, chunk))
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
