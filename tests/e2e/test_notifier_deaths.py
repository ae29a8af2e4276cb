"""A notifier that dies at each of its steps, on a real Kafka: everybody is told at least once, and no run waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import WAIT_S, Installation, installed
from tests.e2e.running import Process, eventually
from tests.e2e.victim import TRIES
from tests.notifier.beginning import has_begun
from tests.notifier.receiver import Receiver, receiving

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

FLOW = """\
id: late
deadlines: [{within: 1s, from: queued, action: fail}]
notify: [{events: [run_failed, deadline_missed], to: [ops, gone]}]
tasks: [{id: hold, wait_for: {approval: {}}}]
"""
STEPS = ("writing", "written", "claimed", "sent", "noted", "gave-up")
TITLES = {"late failed", "late: deadline missed"}


class Told:
    """The two targets; one of them refuses whatever comes."""

    def __init__(self, ops: Receiver, gone: Receiver) -> None:
        self.ops = ops
        self.gone = gone
        gone.status = 503
        self.env = {
            "TIDEWHEEL_NOTIFY_OPS": ops.url(),
            "TIDEWHEEL_NOTIFY_GONE": gone.url(),
            "VICTIM_TRIES_S": "0.1",
        }

    def of(self, run_id: str) -> set[str]:
        """The titles of what was told of a run."""
        return {taken["title"] for taken in self.ops.taken if f"Run {run_id} of late" in taken["message"]}


@contextmanager
def at_work(home: Path, kafka: str, postgres: str) -> Iterator[tuple[Installation, Told]]:
    with receiving() as ops, receiving() as gone, installed(home, kafka, postgres) as site:
        told = Told(ops, gone)
        site.deploy(FLOW)
        first = start(site, "never", told)
        eventually(lambda: has_begun(postgres), WAIT_S, "the notifier to have begun")
        first.kill()
        yield site, told


def start(site: Installation, step: str, told: Told) -> Process:
    return site.victim(step, "notifier", env=told.env)


def test_what_happened_is_told_whatever_step_the_notifier_dies_at(kafka_address: str, dsn: str, tmp_path: Path) -> None:
    with at_work(tmp_path, kafka_address, dsn) as (site, told):
        for step in STEPS:
            site.trigger("late", step)
            victim = start(site, f"notifier-{step}", told)
            eventually(victim.died, WAIT_S, f"the notifier's death at '{step}'")
            # It was told to nobody, or to some; the run has ended all the same.
            assert site.ended("late", step)["reason"].startswith("deadline missed")
        start(site, "never", told)
        eventually(lambda: all(told.of(step) == TITLES for step in STEPS), WAIT_S, "everything to be told")
        undelivered = 2 * len(STEPS)
        letters = eventually(lambda: given_up(site, undelivered), WAIT_S, "what is never delivered to be put aside")
    tries = [re.search("target 'gone' failed ([0-9]+) times", reason) for reason in letters.values()]
    assert all(found is not None and int(found[1]) >= TRIES for found in tries), letters
    # One that a notifier began and died in counts too.
    assert told.gone.tries >= TRIES * undelivered - len(STEPS) and not told.gone.taken
    identities = [taken["message"].splitlines()[-1] for taken in told.ops.taken]
    # Whatever came twice says so by its name: a notifier died between sending and noting, or before it knew.
    assert len(set(identities)) == undelivered
    assert len(identities) - len(set(identities)) <= len(STEPS)


def given_up(site: Installation, wanted: int) -> dict[str, str]:
    """Reasons by notification, once there are so many. A notification may have two letters, if its writer died."""
    letters = httpx.get(f"{site.env['TIDEWHEEL_API']}/api/v1/dead-letters", timeout=20).json()["items"]
    found = {letter["reason"].partition(" was not")[0]: letter["reason"] for letter in letters}
    return found if len(found) >= wanted else {}
