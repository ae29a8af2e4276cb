"""Faults of schedulers: killed or stopped at a named step, started again in place or after others took over."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from tests.chaos.outcome import Card, HeldEnd, NotReached, Outcome
from tests.chaos.site import Site
from tests.chaos.steps import STEPS, begins, is_commit, recovers, scheduler_of
from tests.chaos.striking import strike
from tidewheel.testing.kafka_frames import end_error
from tidewheel.testing.tcp_proxy import Hold

#: How long a scheduler may take to come to a step.
STEP_S = 15.0
#: Past the group's session and the transaction's time-out.
PAST_SESSION_S = 7.0
#: Between one change of the group and the next.
STORM_S = 3.0
_ANSWER_S = 2.0


@contextlib.contextmanager
def _at(site: Site, step: str, rng: random.Random) -> Iterator[tuple[str, Hold | None]]:
    """A scheduler that is at this step now and kept there, and what keeps it."""
    if step == "idle":
        yield rng.choice(site.owners()), None
        return
    found = STEPS[step]
    with site.held(found.wanted, answer=found.answer) as hold:
        request = hold.wait(STEP_S)
        if request is None:
            raise NotReached(f"no scheduler came to '{step}' within {STEP_S:g} s")
        yield scheduler_of(request), hold


def _inside(step: str) -> bool:
    return step in STEPS and STEPS[step].inside


def kill_scheduler(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill it; the other one takes over, and only then is it started again."""
    with _at(site, card.step, rng) as (victim, hold):
        member, shards = site.members[victim], site.shards_of(victim)
        outcome = Outcome(card=card, victim=victim, struck=True, inside=_inside(card.step))
        strike(site, outcome, shards, member.kill, lambda: _dispose(hold, rng))
    member.start()
    return outcome


def restart_scheduler(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill it and start it again at once, under its own name."""
    with _at(site, card.step, rng) as (victim, hold):
        member, shards = site.members[victim], site.shards_of(victim)
        outcome = Outcome(card=card, victim=victim, struck=True, inside=_inside(card.step))

        def again() -> None:
            member.start()
            _dispose(hold, rng)

        return strike(site, outcome, shards, member.kill, again)


def _dispose(hold: Hold | None, rng: random.Random) -> None:
    """What a dead process had on its way is lost, or arrives all the same."""
    if hold is not None:
        rng.choice([hold.drop, hold.release])()


def stop_scheduler(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Stop it past its session, let the other one take over, and let it go on where it was."""
    with _at(site, card.step, rng) as (victim, hold):
        member, shards = site.members[victim], site.shards_of(victim)
        outcome = Outcome(card=card, victim=victim, struck=True, inside=_inside(card.step))
        stopped = time.monotonic()
        strike(site, outcome, shards, member.pause)
        time.sleep(max(0.0, stopped + PAST_SESSION_S - time.monotonic()))
        # What it had asked for reaches the broker only now.
        if hold is not None:
            hold.release()
    member.resume()
    return outcome


def kill_recovering(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill it, start it again, and kill it once more while it reads the journals."""
    victim = rng.choice(site.owners())
    member, shards = site.members[victim], site.shards_of(victim)
    member.kill()
    with site.held(recovers(victim)) as hold:
        member.start()
        if hold.wait(STEP_S) is None:
            raise NotReached(f"'{victim}' was not seen to recover within {STEP_S:g} s")
        outcome = Outcome(card=card, victim=victim, struck=True)

        def again() -> None:
            hold.drop()
            member.start()

        return strike(site, outcome, shards, member.kill, again)


def hold_commit(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Keep a request to commit back in the network and deliver it when a later transaction of its name is open.

    What happens meanwhile is the step: its connection is ``cut``, it is ``outlasted`` by its sender's patience, or its
    sender is ``killed`` or ``stopped``.
    """
    with site.held(is_commit) as late:
        request = late.wait(STEP_S)
        if request is None:
            raise NotReached(f"no scheduler came to commit within {STEP_S:g} s")
        victim = scheduler_of(request)
        member, shards = site.members[victim], site.shards_of(victim)
        killed_or_stopped = card.step in ("killed", "stopped")
        outcome = Outcome(card=card, victim=victim, struck=killed_or_stopped, inside=True)

        def blow() -> None:
            if card.step == "cut":
                late.cut_client()
            elif card.step == "killed":
                member.kill()
            elif card.step == "stopped":
                member.pause()

        def deliver() -> None:
            if card.step == "killed":
                member.start()
            if card.step == "stopped":
                # The heir's transactions have another name: the broker has ended this one by itself.
                time.sleep(PAST_SESSION_S)
                outcome.held = _deliver(late, other_open=False)
                member.resume()
                return
            with site.held(begins(request.transactional_id), answer=True) as following:
                other_open = following.wait(STEP_S + PAST_SESSION_S) is not None
                outcome.held = _deliver(late, other_open=other_open)

        return strike(site, outcome, shards, blow, deliver)


def _deliver(late: Hold, *, other_open: bool) -> HeldEnd:
    late.release()
    request, answer = late.holds, late.answer(_ANSWER_S)
    assert request is not None
    return HeldEnd(end_error(request, answer) if answer else None, other_open)


def storm(site: Site, card: Card, rng: random.Random) -> Outcome:
    """A scheduler joins or leaves every three seconds; each time all shards are without an owner for a moment."""
    guest = site.scheduler("s3")
    outcome = Outcome(card=card, victim="s3", struck=True)
    longest: dict[int, float] = {}
    try:
        for change in (guest.start, guest.stop, guest.start, guest.kill):
            begun = time.monotonic()
            strike(site, outcome, site.shards, change)
            for shard, late_s in outcome.failover_s.items():
                longest[shard] = max(late_s, longest.get(shard, 0.0))
            time.sleep(max(0.0, begun + STORM_S - time.monotonic()))
    finally:
        guest.stop()
    outcome.failover_s = longest
    return outcome
