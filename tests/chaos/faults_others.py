"""Faults of everything but schedulers: workers, projector, API, broker, Postgres, and the network to both."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

from tests.chaos.journal import now_ms
from tests.chaos.outcome import Card, NotReached, Outcome
from tests.chaos.scheduler_process import LEASE_MS
from tests.chaos.site import LISTENERS, SCHEDULERS, WORKERS, Site
from tests.chaos.striking import strike
from tidewheel.core.commands import ReportSuccess
from tidewheel.log.interface import COMMANDS, Append
from tidewheel.log.opening import open_log
from tidewheel.testing.kafka_frames import Api
from tidewheel.wire.codec import encode

#: Stopped for longer than its leases live, so that what it does afterwards comes too late.
WORKER_PAUSE_S = LEASE_MS / 1000 + 3
_PAUSE_S = 4.0
_STEP_S = 8.0
#: Reports that are said again.
_REPEATED = 5
#: A long task that began less than this ago runs for a while yet.
_JUST_MS = 1_000
#: What is under way gets this long to arrive before a single broker is killed (``fault_broker``).
_SETTLE_S = 0.2


def fault_worker(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill a worker, or stop it for longer than its leases live; the cycle does not wait for its return."""
    site.do_what_is_due(all_of_it=True)
    victim = rng.choice(WORKERS)
    member = site.members[victim]
    outcome = Outcome(card=card, victim=victim, struck=True)
    if card.kind == "worker-kill":
        return strike(site, outcome, site.shards, member.kill, member.start)
    deadline = time.monotonic() + _STEP_S
    # With something long just begun, so that there is a report that comes too late.
    while not site.journal.works_on(victim, "slow_", now_ms() - _JUST_MS):
        if time.monotonic() > deadline:
            raise NotReached(f"{victim} was given nothing long within {_STEP_S:g} s")
        time.sleep(0.02)
    site.later(WORKER_PAUSE_S, member.resume)
    return strike(site, outcome, site.shards, member.pause)


def hold_report(site: Site, card: Card, rng: random.Random) -> Outcome:
    """A worker's report is on its way for longer than its lease lives; the cycle does not wait for its arrival."""
    site.do_what_is_due(all_of_it=True)
    victim = rng.choice(WORKERS)
    hold = site.kafka.hold(lambda request: request.api == Api.PRODUCE and request.client == victim)
    site.later(WORKER_PAUSE_S, lambda: site.kafka.forget(hold))
    return strike(site, Outcome(card=card, victim=victim), site.shards, lambda: hold.wait(_STEP_S))


def repeat_reports(site: Site, card: Card, rng: random.Random) -> Outcome:
    """The network delivers again what workers said: each report of an attempt that has ended is to be refused."""
    ended = site.journal.succeeded()
    if not ended:
        raise NotReached("no attempt has ended yet")
    before = site.journal.counts["ReportRefused"]
    chosen = rng.sample(ended, min(_REPEATED, len(ended)))
    with contextlib.closing(open_log(site.direct_url)) as log:
        producer = log.producer()
        for (dag, run_id, task, attempt), worker in chosen:
            place = {"dag": dag, "run_id": run_id, "task": task}
            report = ReportSuccess(**place, attempt=attempt, worker=worker, started_at=now_ms(), ended_at=now_ms())
            producer.send(Append(COMMANDS, dag.encode(), encode(report)))
        producer.close()
    deadline = time.monotonic() + _STEP_S
    while site.journal.counts["ReportRefused"] < before + len(chosen) and time.monotonic() < deadline:
        time.sleep(0.05)
    return Outcome(card=card, victim="")


def fault_projector(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill or stop the projector, at any time or when it asks Postgres to commit."""
    member = site.members["projector"]
    outcome = Outcome(card=card, victim="projector", struck=True)
    with _writing(site, outcome):
        if card.kind == "projector-kill":
            return strike(site, outcome, site.shards, member.kill, member.start)
        strike(site, outcome, site.shards, member.pause)
        time.sleep(_PAUSE_S)
    member.resume()
    return outcome


@contextlib.contextmanager
def _writing(site: Site, outcome: Outcome) -> Iterator[None]:
    """Where the card says so: the projector has asked Postgres to commit, and Postgres has not heard of it."""
    if outcome.card.step != "committing":
        yield
        return
    hold = site.postgres_proxy.hold(lambda request: b"COMMIT" in request.body)
    try:
        outcome.inside = hold.wait(_STEP_S) is not None
        if not outcome.inside:
            raise NotReached(f"the projector did not come to commit within {_STEP_S:g} s")
        yield
    finally:
        hold.drop()
        site.postgres_proxy.forget(hold)


def fault_api(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill or stop the API."""
    member = site.members["api"]
    outcome = Outcome(card=card, victim="api", struck=True)
    if card.kind == "api-kill":
        return strike(site, outcome, site.shards, member.kill, member.start)
    strike(site, outcome, site.shards, member.pause)
    time.sleep(_PAUSE_S)
    member.resume()
    return outcome


def fault_broker(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill a broker, shut it down in order, or freeze it.

    Of several, the others take over and it starts again afterwards. A single one starts again at once, and what is
    late is counted from its return. When a single broker of Kafka 4.4 is killed between the answer to a commit and the
    commit's markers it forgets these, which no client can mend; so for a moment before, nothing new reaches it:
    transactions are open, commits are not under way.
    """
    number = rng.randrange(len(site.brokers))
    broker, alone = site.brokers[number], len(site.brokers) == 1
    outcome = Outcome(card=card, victim=f"broker-{number + 1}", struck=True)
    if card.step == "frozen":
        return strike(site, outcome, site.shards, broker.pause, lambda: _after(_PAUSE_S, broker.resume))

    def end() -> None:
        if card.step == "clean":
            broker.stop()
            return
        if alone:
            site.kafka.freeze()
            time.sleep(_SETTLE_S)
        broker.kill()
        if alone:
            site.kafka.cut()
            site.kafka.thaw()

    if alone:
        end()
        return strike(site, outcome, site.shards, broker.start)
    strike(site, outcome, site.shards, end)
    broker.start()
    return outcome


def _after(seconds: float, action: Callable[[], object]) -> None:
    time.sleep(seconds)
    action()


def fault_postgres(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Kill Postgres, or shut it down in order; it is away for a moment and comes back."""
    outcome = Outcome(card=card, victim="postgres", struck=True)
    with _writing(site, outcome):
        strike(site, outcome, site.shards, site.postgres.stop if card.step == "clean" else site.kill_postgres)
    time.sleep(rng.uniform(0.5, 2.0))
    site.start_postgres()
    return outcome


def cut(site: Site, card: Card, rng: random.Random) -> Outcome:
    """Break one process's connections to the broker, or everybody's to Postgres."""
    if card.step == "postgres":
        return strike(site, Outcome(card=card, victim="postgres"), site.shards, site.postgres_proxy.cut)
    victim = rng.choice(site.running((*SCHEDULERS, *WORKERS, *LISTENERS, "waiter", "notifier", "projector", "api")))
    return strike(site, Outcome(card=card, victim=victim), site.shards, lambda: site.kafka.cut(victim))


def half_open(site: Site, card: Card, rng: random.Random) -> Outcome:
    """One scheduler's connections die and nobody is told."""
    victim = rng.choice(site.owners())
    shards = site.shards_of(victim)
    return strike(site, Outcome(card=card, victim=victim), shards, lambda: site.kafka.half_open(victim))


def slow_network(site: Site, card: Card, rng: random.Random) -> Outcome:
    """For a while everything to and from the broker is late, or nothing passes at all, there or to Postgres."""
    proxy = site.postgres_proxy if card.step == "postgres" else site.kafka

    def blow() -> None:
        if card.step == "late":
            proxy.delay_s = 0.1
        else:
            proxy.freeze()

    def after() -> None:
        time.sleep(_PAUSE_S)
        proxy.delay_s = 0.0
        proxy.thaw()

    return strike(site, Outcome(card=card, victim="network"), site.shards, blow, after)
