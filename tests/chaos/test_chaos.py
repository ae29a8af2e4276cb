"""The short form of `make chaos`: a few of its faults, and the whole comparison."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.chaos import report
from tests.chaos.campaign import Campaign
from tests.chaos.outcome import Card
from tests.chaos.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

CARDS = (
    Card("worker-stop", "idle"),
    Card("scheduler-restart", "committing"),
    Card("held-commit", "cut"),
    Card("scheduler-stop", "committing"),
    Card("projector-kill", "committing"),
    Card("listener-kill", "committing"),
    Card("waiter-kill", "writing"),
    Card("notifier-kill", "telling"),
    # What a stopped worker had may have been ended by its supervisor without a word: this is a stale report for sure.
    Card("repeated-report", "ended"),
)


def test_nothing_is_lost_or_doubled_by_a_few_faults(tmp_path: Path) -> None:
    begun = time.monotonic()
    told: list[str] = []
    with Site(tmp_path, rate=4, short_lived=True) as site:
        campaign = Campaign(site, random.Random(1), lambda number, outcome: told.append(report.line(number, outcome)))
        campaign.play(CARDS)
        verdict = campaign.conclude()
        refused = site.journal.counts["ReportRefused"]
    found = report.figures(
        campaign.outcomes, verdict, seed=1, brokers=1, refused=refused, wall_s=time.monotonic() - begun
    )
    # How late is for the long form, which has the machine to itself.
    assert not report.failures(found, late=False), "\n".join(told)
    assert (found.cycles, found.kills_and_pauses, found.inside_transaction) == (9, 7, 3), "\n".join(told)
    assert found.held_end_txn.held == found.held_end_txn.refused == 1, "\n".join(told)
