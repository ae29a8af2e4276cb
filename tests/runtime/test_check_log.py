"""Checking whole logs: what the engine writes in trouble is good, also between shards; what was altered is named."""

from __future__ import annotations

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.mail import AssignTask
from tidewheel.core.workflow import Concurrency, Retry, Run, Schedule, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import EVENTS, JOURNALS, Append
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.checker import check_log
from tidewheel.testing.world import Outcome, World
from tidewheel.wire.codec import decode_event

MINUTE = 60_000


def task(id_: str, *needs: str, retries: int = 0) -> Task:
    return Task(id=id_, action=Run(command="true"), needs=needs, retry=Retry(max=retries, delay_ms=1_000))


def troubled(seed: int) -> World:
    """Two schedulers, one of which dies and returns; workers that fail, fall silent and die; cancels, a pause."""
    world = World(CelEvaluator(), seed=seed, schedulers=2, checkpoint_events=50)
    rng = world.random

    def behaviour(assignment: AssignTask) -> Outcome:
        fate = rng.random()
        if fate < 0.05:
            return Outcome(silent=True)
        return Outcome(takes_ms=rng.choice([0, 0, 3_000, 50_000]), fails="exit_code" if fate < 0.25 else None)

    for number in range(3):
        world.add_worker(f"w{number}", slots=3, behaviour=behaviour)
    for name, catchup in (("one", "all"), ("two", "latest"), ("three", "none")):
        tasks = (task("a", retries=2), *(task(f"b{n}", "a", retries=1) for n in range(4)), task("z", "b0", "b1", "b2"))
        schedule = Schedule(cron=("*/2 * * * *",), catchup=catchup, jitter_ms=30_000)  # type: ignore[arg-type]
        limits = Concurrency(max_runs=2, max_tasks=4)
        world.deploy(Workflow(id=name, tasks=tasks, schedule=schedule, concurrency=limits))
    for step in range(12):
        world.advance(MINUTE)
        name = rng.choice(["one", "two", "three"])
        live = [r.event for r in world.journal() if isinstance(r.event, e.RunStarted) and r.event.dag == name]
        if live:
            world.ask(c.CancelRun(dag=name, run_id=rng.choice(live).run_id, reason="test"))
        if step == 3:
            world.ask(c.PauseDag(dag="one"))
            world.ask(c.PauseDag(dag="two"))
            world.kill_scheduler("scheduler-1")
        if step == 7:
            world.start_scheduler("scheduler-1")
            world.advance(1_000)  # the shards change hands
            world.ask(c.UnpauseDag(dag="one"))
            world.ask(c.UnpauseDag(dag="two"))
            world.workers[0].alive = False
    return world


@pytest.mark.parametrize("seed", range(4))
def test_the_engine_in_trouble_writes_a_good_journal_in_which_dags_and_pools_agree(seed: int) -> None:
    world = troubled(seed)
    report = check_log(world.log, settled=True)
    assert report.violations == ()
    assert report.ok
    assert report.events == len(world.journal()) > 500
    # The trouble did happen.
    for kind in (e.LeaseExpired, e.TaskFailed, e.RunCancelled, e.TaskCancelRequested, e.SlotsSkipped, e.TaskReady):
        assert world.events(kind), kind


def copied(source: World, change: tuple[int, int] | None = None) -> MemoryLog:
    """The journals in another log, with the bytes of one record (partition, number) altered."""
    log = MemoryLog(source.log.partitions)
    producer = log.producer()
    for topic in JOURNALS:
        for partition in range(log.partitions):
            records = source.log.reader({(topic, partition): 0}).read(1_000_000, 0)
            for number, record in enumerate(records):
                value = record.value
                assert value is not None
                if topic == EVENTS and change == (partition, number):
                    value = value.replace(b"it failed", b"it passed")
                producer.send(Append(topic, record.key or b"", value, partition=partition))
    producer.flush(1)
    return log


def test_an_edited_event_is_named_with_its_offset() -> None:
    world = troubled(0)
    assert check_log(copied(world)).ok
    for partition in range(world.log.partitions):
        records = world.log.reader({(EVENTS, partition): 0}).read(1_000_000, 0)
        for number, record in enumerate(records):
            if record.value is not None and isinstance(decode_event(record.value).event, e.TaskFailed):
                (violation,) = check_log(copied(world, (partition, number))).violations
                assert (violation.topic, violation.partition, violation.offset) == (EVENTS, partition, number)
                assert violation.invariant == 7
                return
    raise AssertionError("no task failed")


def test_a_log_that_is_being_written_is_read_on_to_the_end_of_the_decision() -> None:
    """The end as first seen lies between a run's creation and its start."""
    world = World(CelEvaluator(), partitions=1)
    world.add_worker()
    world.deploy(Workflow(id="d", tasks=(task("a"), task("b", "a"))))
    world.ask(c.StartRun(dag="d", run_id="r"))
    world.settle()
    records = world.log.reader({(EVENTS, 0): 0}).read(1_000, 0)
    values = [record.value for record in records if record.value is not None]
    cut = next(n for n, value in enumerate(values) if isinstance(decode_event(value).event, e.RunCreated)) + 1
    log = MemoryLog(1)
    producer = log.producer()
    for value in values[:cut]:
        producer.send(Append(EVENTS, b"d", value, partition=0))
    (violation,) = check_log(log).violations
    assert (violation.invariant, violation.offset) == (6, cut - 1)

    seen: list[tuple[int, int]] = []

    def write_the_rest(read: int, expected: int) -> None:
        if not seen:
            for value in values[cut:]:
                producer.send(Append(EVENTS, b"d", value, partition=0))
        seen.append((read, expected))

    report = check_log(log, write_the_rest)
    assert (report.ok, report.events) == (True, len(values))
    assert seen[0] == (cut, cut)


def test_an_empty_log_is_whole() -> None:
    assert check_log(MemoryLog(2)).events == 0
