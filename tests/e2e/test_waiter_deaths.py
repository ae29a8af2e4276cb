"""A waiter that dies at each of its steps while waits are open, on a real Kafka: each wait is answered, once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.e2e.installation import WAIT_S, Installation, installed
from tests.e2e.journals import events_of
from tests.e2e.running import eventually
from tests.http_service import Answer, Request, http_service, in_json
from tidewheel.core import events as e

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

FLOW = """\
id: settle
tasks:
  - id: before
    wait_for: {kafka: {topic: %(topic)s, match: "${{ event.value.run == run.id }}", window: 1h}}
  - id: after
    wait_for: {kafka: {topic: %(topic)s, match: "${{ event.value.run == run.id }}", window: 0s}}
  - id: answer
    wait_for: {http: {url: "%(url)s/${{ run.id }}", every: 1s, until: "${{ response.json.ready }}"}}
"""
STEPS = ("waiter-found", "waiter-reported", "waiter-told")
#: Long before any window.
OLD_S = 7_200


class Service:
    """Says that nothing is ready for a run until it is. ``on_request`` is called before each answer."""

    def __init__(self) -> None:
        self.url = ""
        self.ready: set[str] = set()
        self.on_request: Callable[[], None] = lambda: None

    def answer(self, request: Request) -> Answer:
        self.on_request()
        return in_json({"ready": request.path.lstrip("/") in self.ready})


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    with http_service(found.answer) as found.url:
        yield found


@pytest.fixture
def site(kafka_address: str, dsn: str, tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, kafka_address, dsn) as found:
        yield found


def publish_old(site: Installation, topic: str, *runs: str) -> None:
    """Records that match, from before the window of whoever waits now."""
    producer = Producer({"bootstrap.servers": site.kafka})
    for run in runs:
        producer.produce(topic, value=json.dumps({"run": run}), timestamp=int((time.time() - OLD_S) * 1000))
    assert producer.flush(20) == 0


def die(site: Installation, step: str) -> None:
    """A waiter comes to this step, and no further."""
    victim = site.victim(step, "waiter", "--name", step)
    eventually(victim.died, WAIT_S, f"the waiter's death at '{step}'")


def test_each_wait_is_answered_once_whatever_step_the_waiter_dies_at(site: Installation, service: Service) -> None:
    topic = site.create_topic("done")
    runs = (*STEPS, "asked")
    publish_old(site, topic, *runs)
    site.publish(topic, *({"run": run} for run in runs))
    site.deploy(FLOW % {"topic": topic, "url": service.url})

    def state(run: str, task: str) -> str:
        found = site.get("settle", "runs", run, "tasks", task)
        return str(found and found["state"])

    for step in STEPS:
        site.trigger("settle", step)
        die(site, step)
    site.trigger("settle", "asked")
    # Killed with a request under way; the one that stands by goes on.
    first = site.start("first", "waiter", "--name", "first")
    service.on_request = first.kill
    eventually(lambda: not first.alive, WAIT_S, "a request")
    service.on_request = lambda: None
    second = site.start("second", "waiter", "--name", "second")
    for run in runs:
        eventually(lambda run=run: state(run, "before") == "success", WAIT_S, f"{run}: before")  # type: ignore[misc]
        assert [state(run, task) for task in ("after", "answer")] == ["deferred"] * 2, run
    second.kill()
    for step in STEPS:
        service.ready.add(step)
        die(site, step)
    service.ready.update(runs)
    site.start("third", "waiter", "--name", "third")
    site.publish(topic, *({"run": run} for run in runs))
    for run in runs:
        assert site.ended("settle", run)["state"] == "success"
        outputs = {task: site.get("settle", "runs", run, "tasks", task)["output"] for task in ("before", "after")}
        number = runs.index(run)
        assert [outputs["before"]["offset"], outputs["after"]["offset"]] == [number + len(runs), number + 2 * len(runs)]
    succeeded = Counter((one.run_id, one.task, one.attempt) for one in events_of(site.log, e.TaskSucceeded))
    assert succeeded == {(run, task, 1): 1 for run in runs for task in ("before", "after", "answer")}
    site.proved()
