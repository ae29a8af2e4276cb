"""Faults of those who look outside: listeners, the waiter and the notifier, at what they say to the broker and others.

None of them holds up a run of others, so what is measured is that tasks go on starting; what they owe is compared at
the end.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

from tests.chaos.outcome import Card, NotReached, Outcome
from tests.chaos.site import LISTENERS, Site
from tests.chaos.striking import strike
from tidewheel.testing.kafka_frames import Api, Request

#: How long one of them may take to come to a step.
STEP_S = 15.0
#: Past a listener's session, so that the other one takes its partitions over.
PAST_SESSION_S = 7.0


def fault_follower(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill the one that comes to the step and start it again; or stop it for longer than a session."""
    with _at(site, card, rng) as (victim, release):
        member = site.members[victim]
        outcome = Outcome(card=card, victim=victim, struck=True)
        if card.kind.endswith("-kill"):

            def again() -> None:
                release()
                member.start()

            return strike(site, outcome, site.shards, member.kill, again)
        stopped = time.monotonic()
        strike(site, outcome, site.shards, member.pause)
        time.sleep(max(0.0, stopped + PAST_SESSION_S - time.monotonic()))
        # What it had asked for reaches the broker only now.
        release()
    member.resume()
    return outcome


@contextlib.contextmanager
def _at(site: Site, card: Card, rng: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
    """One of the kind that is at this step now and kept there, and how to let what it said go on, or get lost."""
    names = LISTENERS if card.kind.startswith("listener") else (card.kind.partition("-")[0],)
    if card.step == "idle":
        yield rng.choice(site.running(names)), lambda: None
    elif card.step == "telling":
        with _telling(site) as release:
            yield names[0], release
    else:
        wanted, answer = _STEPS[card.step]
        with site.held(lambda request: wanted(request) and bool(_whose(request, names)), answer=answer) as hold:
            request = hold.wait(STEP_S)
            if request is None:
                raise NotReached(f"no {names[0]} came to '{card.step}' within {STEP_S:g} s")
            yield _whose(request, names), rng.choice([hold.drop, hold.release])


#: What is held, and whether it is the answer to it.
_STEPS: dict[str, tuple[Callable[[Request], bool], bool]] = {
    "writing": (lambda request: request.api == Api.PRODUCE, False),
    "written": (lambda request: request.api == Api.PRODUCE, True),
    "committing": (lambda request: request.api == Api.OFFSET_COMMIT, False),
    "committed": (lambda request: request.api == Api.OFFSET_COMMIT, True),
}


def _whose(request: Request, names: tuple[str, ...]) -> str:
    """Which of them asks; nothing if none does. A listener's consumer has its name within its client id."""
    return next((name for name in names if request.client == name or f"listener-{name}-" in request.client), "")


@contextlib.contextmanager
def _telling(site: Site) -> Iterator[Callable[[], object]]:
    """The notifier has told its target, which has not answered yet."""
    told, go = threading.Event(), threading.Event()

    def on_arrival() -> None:
        told.set()
        go.wait(STEP_S)

    site.target.on_arrival = on_arrival
    try:
        if not told.wait(STEP_S):
            raise NotReached(f"the notifier told nothing within {STEP_S:g} s")
        yield go.set
    finally:
        site.target.on_arrival = lambda: None
        go.set()
