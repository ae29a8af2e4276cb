"""A judge that never finds anything proves nothing: every bug planted into the engine is found."""

from __future__ import annotations

import pytest

from tidewheel.testing.simulation.campaign import Campaign, run_campaign
from tidewheel_projections.simulated import SimulatedProjector
from tidewheel_services.waiter.simulated import SimulatedWaiter
from tidewheel_services.waiter.simulated_bugs import ALL_BUGS

SEEDS_MAX = 200


def test_there_are_enough() -> None:
    assert len(ALL_BUGS) >= 30
    assert all(bug.what.endswith(".") for bug in ALL_BUGS.values())


@pytest.mark.parametrize("name", ALL_BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    campaign = Campaign(
        seeds=range(SEEDS_MAX),
        steps=2_000,
        read_model=SimulatedProjector,
        waiter=SimulatedWaiter,
        plant=ALL_BUGS[name].plant,
        stop_at_first=True,
    )
    tally = run_campaign(campaign)
    assert tally.findings, f"{name} was not found in {tally.seeds} seeds: {ALL_BUGS[name].what}"
    # Found by a judge, and not because the plant itself broke something.
    assert not tally.findings[0].raised, tally.findings[0].what
    assert "TypeError" not in tally.findings[0].what, "the plant does not fit the function that it replaces"
