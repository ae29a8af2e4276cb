"""Whatever happens, and then stops happening: nothing is lost, nothing is doubled, and everything ends.

``TIDEWHEEL_SEEDS=1000-1999`` plays other seeds; many more are played by ``tidewheel simulate``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from tidewheel.testing.simulation.campaign import Campaign, run_campaign
from tidewheel.testing.simulation.faults import KINDS, LISTENER_POINTS, PROJECTOR_POINTS, SCHEDULER_POINTS
from tidewheel.testing.simulation.season import Season, play, quietly
from tidewheel_projections.simulated import SimulatedProjector
from tidewheel_services.waiter.simulated import SimulatedWaiter

_FIRST, _, _LAST = os.environ.get("TIDEWHEEL_SEEDS", "200").rpartition("-")
SEEDS = range(int(_FIRST or 0), int(_LAST) + bool(_FIRST))
STEPS = 2_000
#: Seeds of one test.
PART = 50


@pytest.mark.parametrize("first", SEEDS[::PART])
def test_trouble_ends_and_so_does_everything_else(first: int) -> None:
    seeds = range(first, min(first + PART, SEEDS.stop))
    tally = run_campaign(Campaign(seeds=seeds, steps=STEPS, read_model=SimulatedProjector, waiter=SimulatedWaiter))
    assert tally.findings == []
    assert (tally.seeds, tally.steps) == (len(seeds), len(seeds) * STEPS)
    assert tally.runs > 20 * len(seeds), "next to nothing was run"
    if len(seeds) == PART:
        assert missing(tally.faults) == [], "these faults never struck"


def missing(faults: Counter[str]) -> list[str]:
    """The kinds, and the points of a turn, that nothing happened to. A waiter has something to report once a season,
    which is too seldom for each part to hit it just then."""
    pointed = {
        "crash": (*SCHEDULER_POINTS, *PROJECTOR_POINTS, *LISTENER_POINTS, "look"),
        "pause": (*SCHEDULER_POINTS, "take", "ask", "look"),
        "log_away": ("commit", "mail"),
    }
    wanted = [name for kind in KINDS for name in [f"{kind}:{point}" for point in pointed.get(kind, ())] or [kind]]
    return [name for name in wanted if not faults[name]]


def test_without_faults_only_people_act() -> None:
    tally = run_campaign(
        Campaign(seeds=range(5), steps=STEPS, faults=False, read_model=SimulatedProjector, waiter=SimulatedWaiter)
    )
    assert tally.findings == []
    assert not tally.faults
    assert tally.runs


def test_a_seed_is_the_same_season_in_any_process() -> None:
    """Whatever maps order their keys by, and whatever was played before: else what failed could not be played again."""
    tell = (
        "import msgspec, sys\n"
        "from tidewheel.testing.simulation.season import play, quietly\n"
        "from tidewheel_projections.simulated import SimulatedProjector\n"
        "from tidewheel_services.waiter.simulated import SimulatedWaiter\n"
        "with quietly():\n"
        "    for seed in (3, 7):\n"
        "        season = play(seed, 600, read_model=SimulatedProjector, waiter=SimulatedWaiter)\n"
        "        sys.stdout.write(msgspec.json.encode(msgspec.structs.replace(season, wall_s=0)).decode() + '\\n')\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", tell],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert told[0] == told[1]
    with quietly():
        here = play(7, 600, read_model=SimulatedProjector, waiter=SimulatedWaiter)
    there = msgspec.json.decode(told[0].splitlines()[1], type=Season)
    assert msgspec.structs.replace(here, wall_s=0) == there
    assert there.events > 100
    assert len(there.journal) == 64
