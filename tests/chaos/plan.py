"""Which faults a campaign makes, in which order: a deck of cards, shuffled by the seed, dealt again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from tests.chaos import faults_followers as followers
from tests.chaos import faults_others as others
from tests.chaos import faults_schedulers as schedulers
from tests.chaos.outcome import Card, Outcome
from tests.chaos.site import Site

Fault = Callable[[Site, Card, random.Random], Outcome]

FAULTS: dict[str, Fault] = {
    "scheduler-kill": schedulers.kill_scheduler,
    "scheduler-restart": schedulers.restart_scheduler,
    "scheduler-stop": schedulers.stop_scheduler,
    "scheduler-recovering": schedulers.kill_recovering,
    "held-commit": schedulers.hold_commit,
    "storm": schedulers.storm,
    "worker-kill": others.fault_worker,
    "worker-stop": others.fault_worker,
    "held-report": others.hold_report,
    "repeated-report": others.repeat_reports,
    "projector-kill": others.fault_projector,
    "projector-stop": others.fault_projector,
    "api-kill": others.fault_api,
    "api-stop": others.fault_api,
    "listener-kill": followers.fault_follower,
    "listener-stop": followers.fault_follower,
    "waiter-kill": followers.fault_follower,
    "waiter-stop": followers.fault_follower,
    "notifier-kill": followers.fault_follower,
    "notifier-stop": followers.fault_follower,
    "broker-kill": others.fault_broker,
    "broker-restart": others.fault_broker,
    "broker-pause": others.fault_broker,
    "postgres": others.fault_postgres,
    "cut": others.cut,
    "half-open": others.half_open,
    "slow": others.slow_network,
}

#: Kind, and a step for each card of it.
_DECK: Sequence[tuple[str, str]] = (
    ("scheduler-kill", "committing committing produced begun offsets committed checkpoint idle"),
    ("scheduler-restart", "committing committing produced begun offsets committed checkpoint idle"),
    ("scheduler-stop", "committing produced offsets idle"),
    ("scheduler-recovering", "recovering"),
    ("held-commit", "cut outlasted killed stopped"),
    ("storm", "joining"),
    ("worker-kill", "idle idle"),
    ("worker-stop", "idle idle"),
    ("held-report", "reporting"),
    ("repeated-report", "ended"),
    ("projector-kill", "committing idle"),
    ("projector-stop", "idle"),
    ("api-kill", "idle"),
    ("api-stop", "idle"),
    ("listener-kill", "writing written committing committed"),
    ("listener-stop", "written committing"),
    ("waiter-kill", "writing written idle"),
    ("waiter-stop", "writing"),
    ("notifier-kill", "telling idle"),
    ("notifier-stop", "telling"),
    ("broker-kill", "hard"),
    ("broker-restart", "clean"),
    ("broker-pause", "frozen"),
    ("postgres", "hard clean committing"),
    ("cut", "kafka postgres"),
    ("half-open", "kafka"),
    ("slow", "late frozen postgres"),
)
#: What a Postgres that comes and goes means for its clients.
FLAPPING = (
    "postgres",
    "cut:postgres",
    "slow:postgres",
    "projector-kill",
    "projector-stop",
    "waiter-kill",
    "notifier-kill",
)
DECK = tuple(Card(kind, step) for kind, steps in _DECK for step in steps.split())


def deal(rng: random.Random, kinds: Sequence[str] = ()) -> Iterator[Card]:
    """Cards without end; only of these kinds, if any are given (``kind`` or ``kind:step``)."""
    deck = [card for card in DECK if not kinds or card.kind in kinds or f"{card.kind}:{card.step}" in kinds]
    if not deck:
        raise ValueError(f"no fault is of kind {', '.join(kinds)}; there are {', '.join(FAULTS)}")
    while True:
        yield from rng.sample(deck, len(deck))
