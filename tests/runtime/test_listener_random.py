"""Any order of deploying, publishing and dying: each record is one run of each trigger that was there before it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.runtime.test_listener import EACH, Site, workflow
from tests.runtime.worlds import dead_letters
from tidewheel.log.interface import Append, LogUnavailable
from tidewheel.log.memory import MemoryProducer

DAGS = ("one", "two", "three")
STEPS = 60
#: Where the process dies: before what it has sent is there, or before its positions are.
DEATHS = (
    "tests.runtime.test_listener_random.BufferedProducer.flush",
    "tidewheel.log.sqlite.feed.SqliteFollower.commit",
)


def die(*_: object) -> None:
    raise LogUnavailable("the process died here")


class BufferedProducer:
    """What was sent is lost with the process, unless it was flushed, as with Kafka's."""

    def __init__(self, producer: MemoryProducer) -> None:
        self._producer = producer
        self._sent: list[Append] = []

    def send(self, record: Append) -> None:
        self._sent.append(record)

    def flush(self, timeout_s: float) -> None:
        for record in self._sent:
            self._producer.send(record)
        self._sent.clear()
        self._producer.flush(timeout_s)

    def close(self) -> None:
        self._producer.close()


class Story:
    """Random steps, and what must have come of them."""

    def __init__(self, site: Site, rng: random.Random, patch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.rng = rng
        self.patch = patch
        self.deployed: set[str] = set()
        self.texts = 0
        self.wanted: set[tuple[str, str]] = set()
        self.published = 0

    def deploy(self) -> None:
        """For the first time, or anew with the trigger as it is."""
        dag = self.rng.choice(DAGS)
        self.site.world.advance(1)
        self.texts += 1
        self.site.deploy(workflow(dag, EACH, text=str(self.texts)))
        self.deployed.add(dag)

    def publish(self) -> None:
        self.site.world.advance(self.rng.choice([0, 0, 1, 5_000]))
        self.site.publish(self.published)
        self.wanted |= {(dag, f"landing.files/0/{self.published}") for dag in self.deployed}
        self.published += 1

    def listen(self) -> None:
        self.site.listen(self.rng.randint(1, 3))

    def die(self) -> None:
        with self.patch.context() as broken:
            broken.setattr(self.rng.choice(DEATHS), die)
            for _ in range(3):
                try:
                    self.site.listener.turn(0)
                except LogUnavailable:
                    break
        self.site.listener = self.site.new_listener()

    def tell(self) -> None:
        steps = [self.publish, self.publish, self.publish, self.deploy, self.listen, self.listen, self.die]
        for _ in range(STEPS):
            self.rng.choice(steps)()
        self.site.listen(STEPS)


@pytest.mark.parametrize("seed", range(12))
def test_each_record_is_one_run_of_each_trigger_that_was_there_before_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewheel.runtime.listener.listener.RECORDS_MAX", 4)
    site = Site(tmp_path)
    producers = site.world.log.producer
    monkeypatch.setattr(site.world.log, "producer", lambda: BufferedProducer(producers()))
    story = Story(site, random.Random(seed), monkeypatch)
    story.tell()
    runs = [(run.dag, run.origin) for run in site.created]
    assert len(runs) == len(set(runs)), "a record is two runs of one trigger"
    assert set(runs) == story.wanted
    assert not dead_letters(site.world)
    site.world.check()
    site.listener.close()
    site.feed.close()
