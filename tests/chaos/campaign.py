"""The campaign: cycle after cycle one fault under load, then peace, then the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

import psycopg

from tests.chaos.landing import RunKey
from tests.chaos.ledger import read_ledger
from tests.chaos.load import write_dags
from tests.chaos.outcome import Card, NotReached, Outcome
from tests.chaos.plan import FAULTS
from tests.chaos.site import PARTITIONS, WORKERS, Site
from tests.chaos.verdict import Verdict, judge, runs_of, to_be_told
from tests.e2e.running import eventually, tidewheel
from tidewheel.log.interface import JOURNALS

#: Leases run out, back-offs come round, backlogs are worked off.
SETTLE_S = 180.0


class Campaign:
    """Plays cards on a site. ``tell`` gets each outcome."""

    def __init__(self, site: Site, rng: random.Random, tell: Callable[[int, Outcome], None]) -> None:
        self._site = site
        self._rng = rng
        self._tell = tell
        self.outcomes: list[Outcome] = []

    def play(self, cards: Iterable[Card]) -> None:
        """One cycle for each card."""
        for card in cards:
            outcome = self._cycle(card)
            self.outcomes.append(outcome)
            self._tell(len(self.outcomes), outcome)
            report = self._site.journal.report()
            assert report.ok, f"the journal broke in cycle {len(self.outcomes)} ({card}): {report.violations[:3]}"

    def conclude(self) -> Verdict:
        """Let everything run and end, and compare."""
        site = self._site
        site.restore()
        site.load.stop()
        site.landing.stop()
        wanted = site.landing.wanted()
        # Schedules end; a pause would leave a run that has just been created waiting.
        write_dags(site.home / "dags", PARTITIONS, site.api, schedules=False)
        deploy = ("deploy", site.home / "dags", "--api", site.api)
        eventually(lambda: tidewheel(*deploy, env=self._env).returncode == 0, 60, "the DAGs without schedules")
        self._await_peace(wanted)
        for name in WORKERS:
            site.members[name].stop()
        for name in ("s1", "s2"):
            site.members[name].stop()
        eventually(site.journal.reached_end, 60, "the reader to reach the journal's end")
        site.load.named |= site.landing.asked
        told = self._told()
        return judge(site.journal, site.load, wanted, told, read_ledger(site.ledger), self._violations())

    @property
    def _env(self) -> dict[str, str]:
        return {"TIDEWHEEL_LOG": self._site.direct_url, "TIDEWHEEL_POSTGRES": self._site.dsn}

    def _cycle(self, card: Card) -> Outcome:
        site = self._site
        site.do_what_is_due()
        counts = site.journal.counts.copy()
        ended = len(site.journal.ended)
        begun = time.monotonic()
        try:
            outcome = FAULTS[card.kind](site, card, self._rng)
        except NotReached as error:
            outcome = Outcome(card=card, victim="", note=str(error))
        outcome.own_ends = tuple(site.restart_ended())
        outcome.took_s = round(time.monotonic() - begun, 2)
        outcome.runs_ended = len(site.journal.ended) - ended
        outcome.refused = site.journal.counts["ReportRefused"] - counts["ReportRefused"]
        return outcome

    def _await_peace(self, wanted: Iterable[RunKey]) -> None:
        """Until every run has come and ended, and is told of. What has not by then is for the verdict."""
        journal, deadline = self._site.journal, time.monotonic() + SETTLE_S

        def busy() -> bool:
            if journal.open_runs() or not journal.reached_end() or any(run not in journal.created for run in wanted):
                return True
            return bool(to_be_told(journal) - runs_of(self._told()))

        while busy() and time.monotonic() < deadline:
            self._site.restart_ended()
            time.sleep(0.2)

    def _told(self) -> list[str]:
        return [str(taken["message"]) for taken in list(self._site.target.taken)]

    def _violations(self) -> list[str]:
        """What the engine's own proofs say, by the commands that an operator would run."""
        eventually(self._projected, 90, "the projector to reach the journal's end")
        found = [str(violation) for violation in self._site.journal.report(settled=True).violations]
        for command in (("verify", "--settled"), ("projection", "verify")):
            done = tidewheel(*command, env=self._env)
            if done.returncode != 0:
                found.append(f"tidewheel {' '.join(command)}: {done.stdout}{done.stderr}")
        return found

    def _projected(self) -> bool:
        ends = self._site.log.end_offsets([(topic, shard) for topic in JOURNALS for shard in self._site.shards])
        with psycopg.connect(self._site.dsn, options="-c search_path=tidewheel") as connection:
            rows = connection.execute("SELECT topic, partition, next_offset FROM projection_positions").fetchall()
        reached = {(topic, partition): next_offset for topic, partition, next_offset in rows}
        return all(reached.get(place, 0) >= end for place, end in ends.items())
