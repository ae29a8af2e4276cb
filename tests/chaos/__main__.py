"""`make chaos`: hundreds of faults on a real Kafka and Postgres under load, then the comparison; see docs/chaos.md."""

from __future__ import annotations

import argparse
import itertools
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.chaos import report
from tests.chaos.campaign import Campaign
from tests.chaos.plan import FLAPPING, deal
from tests.chaos.site import Site

REPORT = Path("build/chaos.json")
#: Six decks: 312 of them kill or stop a process, whatever the seed.
CYCLES = 372

console = Console(width=160, highlight=False)


def main() -> int:
    """Run the campaign; 1 if it is no pass."""
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help=f"faults to make, one a cycle (default {CYCLES})")
    parser.add_argument(
        "--kind", action="append", default=[], help="only this kind, KIND or KIND:STEP; may be repeated"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="order of the faults")
    parser.add_argument("--rate", type=float, default=6.0, help="runs asked for, a second (default 6)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="3: replicated, two in sync required")
    parser.add_argument(
        "--postgres-flapping",
        type=float,
        metavar="MINUTES",
        help="instead of --cycles: only faults of Postgres and its projector, for so long",
    )
    arguments = parser.parse_args()
    # What was started is ended also when we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rng = random.Random(arguments.seed)
    home = Path(tempfile.mkdtemp(prefix="tidewheel-chaos-"))
    minutes: float | None = arguments.postgres_flapping
    kinds = list(FLAPPING) if minutes is not None else arguments.kind
    extent = f"{arguments.cycles} cycles" if minutes is None else f"{minutes:g} minutes of Postgres flapping"
    console.print(f"seed {arguments.seed}, {extent}; processes write to {home}")
    begun = time.monotonic()
    with Site(home, rate=arguments.rate, brokers=arguments.brokers) as site:
        campaign = Campaign(site, rng, lambda number, outcome: console.print(report.line(number, outcome)))
        cards = deal(rng, kinds)
        if minutes is None:
            campaign.play(itertools.islice(cards, arguments.cycles))
        else:
            end = time.monotonic() + minutes * 60
            campaign.play(itertools.takewhile(lambda _: time.monotonic() < end, cards))
        console.print("everything runs again; waiting until every run has ended")
        verdict = campaign.conclude()
        refused = site.journal.counts["ReportRefused"]
    found = report.figures(
        campaign.outcomes,
        verdict,
        seed=arguments.seed,
        brokers=arguments.brokers,
        refused=refused,
        wall_s=time.monotonic() - begun,
    )
    report.write(found, REPORT)
    report.table(found, console)
    failed = report.failures(found, vacuous=not kinds)
    for reason in failed:
        console.print(f"FAILED: {reason}", soft_wrap=True)
    if not failed:
        shutil.rmtree(home, ignore_errors=True)
    console.print(f"written: {REPORT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
