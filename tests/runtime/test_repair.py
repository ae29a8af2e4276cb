"""`tidewheel journal repair`: each kind of damage on each log, what may be done about it, and what that comes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.broken_journals import PICTURES, TRUNK, Picture, claim, sound
from tidewheel.core.events import JournalRepaired
from tidewheel.log.interface import EVENTS, Append, Log
from tidewheel.log.kafka import KafkaLog
from tidewheel.log.memory import MemoryLog
from tidewheel.log.sqlite import SqliteLog
from tidewheel.runtime.checker import Checker, Report
from tidewheel.runtime.recovery import bring_each_up_to_date
from tidewheel.runtime.repair import NotRepaired, Repaired, repair
from tidewheel.runtime.repair_plan import Plan, examine
from tidewheel.runtime.repairs import repairs_of
from tidewheel.runtime.shard import Shard
from tidewheel.testing.log_contract.driver import read_all
from tidewheel.wire.codec import decode_event

#: Each picture has a partition of its own, so that one log shows them all.
NUMBER = {picture.name: number for number, picture in enumerate(PICTURES)}
BY_NAME = [pytest.param(picture, id=picture.name) for picture in PICTURES]
LOGS = ("memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka))


@pytest.fixture(scope="module")
def good() -> list[bytes]:
    return sound()


@pytest.fixture(scope="module", params=LOGS)
def log(request: pytest.FixtureRequest, good: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log on which every picture is planted."""
    opened = _open(request, tmp_path_factory.mktemp("log"))
    opened.create_topics()
    producer = opened.producer()
    for picture in PICTURES:
        number = NUMBER[picture.name]
        for value in picture.damage(good):
            producer.send(Append(EVENTS, b"etl", value, partition=number))
        if picture.claimed is not None:
            producer.send(claim(number, picture.claimed(_named(picture, good))))
    producer.flush(30)
    producer.close()
    yield opened
    opened.close()


def _open(request: pytest.FixtureRequest, home: Path) -> Log:
    if request.param == "memory":
        return MemoryLog(len(PICTURES))
    if request.param == "sqlite":
        return SqliteLog(home / "log.db", len(PICTURES))
    address = request.getfixturevalue("kafka_address")
    return KafkaLog(address, f"repair{os.getpid()}.", len(PICTURES))


def _named(picture: Picture, good: list[bytes]) -> list[bytes]:
    """What the checkpoint was written behind: of the branch that won, where there are two."""
    if picture.name != "one of them under a checkpoint":
        return good
    damaged = [value for value in picture.damage(good) if value is not None]
    return [*damaged[:TRUNK], *damaged[TRUNK + 2 :]]


def _examine(log: Log, picture: Picture, good: list[bytes]) -> Plan:
    keep = None if picture.keep is None else picture.keep(good)
    return examine(log, EVENTS, NUMBER[picture.name], keep=keep)


def _repair(log: Log, plan: Plan) -> Repaired:
    return repair(
        log,
        plan,
        actor="user:ann",
        reason="a test",
        now=1_800_000_000_000,
        give_up=plan.unproven,
        pause=lambda seconds: None,
    )


@pytest.mark.parametrize("picture", BY_NAME)
def test_it_is_seen_told_and_repaired_only_as_far_as_the_log_proves(
    log: Log, picture: Picture, good: list[bytes]
) -> None:
    number = NUMBER[picture.name]
    before = read_all(log, EVENTS, number)
    plan = _examine(log, picture, good)
    assert plan.verdict == picture.verdict, plan
    assert plan.unproven == min(picture.unproven, len(good)), plan
    if plan.verdict == "whole":
        with pytest.raises(NotRepaired, match="nothing to repair"):
            _repair(log, plan)
        return
    if plan.verdict == "unsure":
        with pytest.raises(NotRepaired):
            _repair(log, plan)
        assert read_all(log, EVENTS, number) == before
        return
    if plan.unproven:
        with pytest.raises(NotRepaired, match=f"--give-up {plan.unproven}"):
            repair(log, plan, actor="user:ann", reason="", now=0, pause=lambda seconds: None)
        assert read_all(log, EVENTS, number) == before
    done = _repair(log, plan)
    after = read_all(log, EVENTS, number)
    assert after[: len(before)] == before, "nothing is deleted or altered"
    repairs = [decode_event(record.value or b"") for record in after[len(before) :]]
    assert len(repairs) == done.repairs >= 1
    events = [recorded.event for recorded in repairs]
    assert all(isinstance(event, JournalRepaired) and "a test" in event.reason for event in events)
    assert _examine(log, picture, good).verdict == "whole"
    shard = Shard(number)
    _, faults = bring_each_up_to_date([shard], log, lambda: 0)
    assert not faults
    kept = max(0, len(good) - picture.short)
    assert shard.heads[EVENTS].shard_seq == kept + done.repairs
    report = _check(log, number)
    assert [violation for violation in report.violations if violation.invariant == 7] == []
    assert [found.event for found in report.repairs] == events
    dag = next((state for key, state in shard.aggregates.items() if key.name == "etl"), None)
    assert (0 if dag is None else dag.seq) == (decode_event(good[kept - 1]).seq if kept else 0)


def _check(log: Log, number: int) -> Report:
    """What `tidewheel verify` says of one partition alone."""
    checker = Checker(repairs=repairs_of(log, EVENTS, number))
    for record in read_all(log, EVENTS, number):
        checker.feed(EVENTS, number, record.offset, record.value or b"")
    return checker.finish()
