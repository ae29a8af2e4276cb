"""Moving to another number of partitions: every state is kept, nothing unread is lost, and any end goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.rules import Rules
from tidewheel.core.snapshot import state_hash
from tidewheel.core.workflow import Concurrency, Run, Schedule, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, DEAD_LETTERS, EVENTS, LOGS, TRIGGERS, Append, Log
from tidewheel.log.memory import MemoryLog
from tidewheel.log.partition import partition_of
from tidewheel.log.sqlite import SqliteLog
from tidewheel.runtime import reshard as resharding
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.reshard import ReshardRefused, reshard
from tidewheel.runtime.scheduler import Scheduler
from tidewheel.runtime.shard import AggregateKey, Shard
from tidewheel.testing.log_contract.driver import read_all
from tidewheel.testing.world import Outcome, World
from tidewheel.wire.codec import decode, decode_event, encode
from tidewheel.wire.messages import LogChunk

TASKS = (Task(id="a", action=Run(command="true")), Task(id="b", action=Run(command="true"), needs=("a",)))
DAGS = [f"dag{number}" for number in range(9)]
UNNAMED = b'{"dag": "dag1"}'


class Cut(Exception):
    """The process ends here."""


@pytest.fixture
def world() -> World:
    """Ended, live and failed runs, an unnamed trigger, task logs; everybody stopped, and requests that nobody read."""
    world = World(CelEvaluator(), partitions=3, checkpoint_events=100)
    world.add_worker(behaviour=lambda work: Outcome(takes_ms=600_000 if work.run_id == "long" else 1_000))
    for name in DAGS:
        schedule = Schedule(cron=("* * * * *",)) if name == "dag3" else None
        world.deploy(Workflow(id=name, tasks=TASKS, schedule=schedule))
        world.ask(c.StartRun(dag=name, run_id="r"))
    producer = world.log.producer()
    producer.send(Append(TRIGGERS, b"dag1", UNNAMED))
    producer.send(Append(TRIGGERS, b"dag1", b"{broken"))
    world.ask(c.StartRun(dag="dag2", run_id="long"))
    world.advance(150_000)
    for scheduler in world.schedulers.values():
        scheduler.close()
    chunk = LogChunk(dag="dag1", run_id="r", task="a", attempt=1, chunk=0, at=world.now, stream="stdout", text="hello")
    producer.send(Append(LOGS, b"dag1/r/a/1", encode(chunk)))
    world.send(c.StartRun(dag="dag5", run_id="unread"))
    producer.send(Append(TRIGGERS, b"dag1", UNNAMED))
    producer.send(Append(TRIGGERS, b"dag1", b"{broken too"))
    return world


def hashes(log: Log) -> dict[AggregateKey, str]:
    found = {}
    for number in range(log.partitions):
        shard = Shard(number)
        bring_up_to_date([shard], log, lambda: 0)
        found.update({key: state_hash(state) for key, state in shard.aggregates.items()})
    return found


def go_on(log: Log, now: Callable[[], int]) -> None:
    """A scheduler takes the log over and does what there is to do."""
    scheduler = Scheduler(log, "heir", CelEvaluator(), clock=now)
    quiet = 0
    while quiet < 5:
        quiet = 0 if scheduler.step(0.01) else quiet + 1
    scheduler.close()


def created(log: Log) -> list[tuple[str, str]]:
    events = [
        decode_event(r.value or b"").event for number in range(log.partitions) for r in read_all(log, EVENTS, number)
    ]
    return sorted((event.dag, event.run_id) for event in events if isinstance(event, e.RunCreated))


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_the_new_log_has_the_same_states_and_goes_on(world: World, partitions: int) -> None:
    new = MemoryLog(partitions, clock=lambda: world.now)
    before = hashes(world.log)
    told = reshard(world.log, new)
    assert (told.aggregates, told.requests) == (len(before), 3)
    assert told.events == len(world.journal())
    assert hashes(new) == before
    assert check_log(new).ok
    names = [record.key for record in read_all(new, LOGS, partition_of(b"dag1/r/a/1", partitions))]
    assert names == [b"dag1/r/a/1"]
    assert sum(len(read_all(new, DEAD_LETTERS, number)) for number in range(partitions)) == 1
    runs = created(new)
    go_on(new, lambda: world.now)
    assert check_log(new, settled=True).ok
    unnamed = [run for dag, run in created(new) if dag == "dag1" and run.startswith("kafka__")]
    assert ("dag5", "unread") in created(new)
    assert len(unnamed) == 2
    assert len(created(new)) == len(runs) + 2
    assert sum(len(read_all(new, DEAD_LETTERS, number)) for number in range(partitions)) == 2


def test_what_the_journal_answers_is_not_carried_over_though_the_position_came_back_old(world: World) -> None:
    lost = [world.log.lose_commits(shard, commits) for commits in (10, 1) for shard in range(3)]
    assert lost.count(True) > 2
    new = MemoryLog(2, clock=lambda: world.now)
    reshard(world.log, new)
    carried = [decode(record.value or b"") for number in range(2) for record in read_all(new, COMMANDS, number)]
    assert carried
    assert not [command for command in carried if isinstance(command, c.Report | c.DeployDag)]
    runs = created(new)
    go_on(new, lambda: world.now)
    assert len(created(new)) == len(runs) + 2
    assert check_log(new, settled=True).ok


def test_a_record_at_a_place_that_named_a_run_before_is_a_run_of_its_own(world: World) -> None:
    new = MemoryLog(world.log.partitions, clock=lambda: world.now + 1)
    reshard(world.log, new)
    go_on(new, lambda: world.now)
    before = created(new)
    new.producer().send(Append(TRIGGERS, b"dag1", UNNAMED))
    go_on(new, lambda: world.now)
    assert len(created(new)) == len(before) + 1
    places = [run_id.rpartition(".")[0] for dag, run_id in created(new) if run_id.startswith("kafka__")]
    assert len(set(places)) < len(places), "the places began anew, and one was met again"


def test_cut_off_after_any_transaction_it_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "_RECORDS_MAX", 40)
    whole = MemoryLog(5, clock=lambda: world.now)
    reshard(world.log, whole)
    cut = MemoryLog(5, clock=lambda: world.now)

    def end(_: int) -> None:
        raise Cut

    tries = 0
    while True:
        tries += 1
        try:
            told = reshard(world.log, cut, end if tries < 100 else None)
            break
        except Cut:
            cut.expel("reshard")
    assert told.written == 0
    assert tries > 10
    for topic in (EVENTS, COMMANDS, TRIGGERS, LOGS, DEAD_LETTERS):
        for number in range(5):
            values = [record.value for record in read_all(whole, topic, number)]
            assert [record.value for record in read_all(cut, topic, number)] == values, (topic, number)
    assert hashes(cut) == hashes(whole)


def test_done_already_nothing_is_written(world: World) -> None:
    new = MemoryLog(5)
    first = reshard(world.log, new)
    again = reshard(world.log, new)
    assert (again.written, again.others) == (0, 0)
    assert (again.events, again.aggregates) == (first.events, first.aggregates)


def test_a_log_that_has_gone_on_is_left_alone(world: World) -> None:
    new = MemoryLog(5, clock=lambda: world.now)
    reshard(world.log, new)
    go_on(new, lambda: world.now)
    with pytest.raises(ReshardRefused, match="of the new log holds events that the old one does not: it is in use"):
        reshard(world.log, new)


def test_nothing_is_moved_while_schedulers_own_either_log(world: World) -> None:
    owner = world.log.owner("s1")
    with pytest.raises(ReshardRefused, match=r"own the old log \(s1\): stop all of them first"):
        reshard(world.log, MemoryLog(5))
    owner.close()
    new = MemoryLog(5)
    new.owner("s2")
    with pytest.raises(ReshardRefused, match=r"own the new log \(s2\)"):
        reshard(world.log, new)


def test_requests_sent_meanwhile_are_not_left_behind(world: World) -> None:
    new = MemoryLog(5)

    def send(_: int) -> None:
        world.send(c.StartRun(dag="dag6", run_id="late"))

    with pytest.raises(ReshardRefused, match="sent to the old log meanwhile"):
        reshard(world.log, new, send)
    told = reshard(world.log, new)
    assert told.requests > 3
    go_on(new, lambda: world.now)
    assert ("dag6", "late") in created(new)


def test_triggers_that_were_put_off_come_along_in_their_order() -> None:
    evaluator = CelEvaluator()
    rules = Rules(evaluator=evaluator, waiting_runs_max=4)
    world = World(evaluator, partitions=2, rules=rules)
    for name in DAGS[:3]:
        world.deploy(Workflow(id=name, tasks=TASKS, concurrency=Concurrency(max_runs=1)))
    producer = world.log.producer()
    for number in range(20):
        for name in DAGS[:2]:
            value = b'{"dag": "%b", "id": "%03d"}' % (name.encode(), number)
            producer.send(Append(TRIGGERS, name.encode(), value))
    producer.send(Append(TRIGGERS, DAGS[2].encode(), b'{"dag": "%b", "id": "once"}' % DAGS[2].encode()))
    world.settle()
    assert {dag for scheduler in world.schedulers.values() for dag in scheduler.status.postponed_dags} == set(DAGS[:2])
    for scheduler in world.schedulers.values():
        scheduler.close()
    new = MemoryLog(5, clock=lambda: world.now)
    reshard(world.log, new)
    go_on(new, lambda: world.now)
    created: dict[str, list[str]] = {}
    for number in range(new.partitions):
        for record in read_all(new, EVENTS, number):
            event = decode_event(record.value or b"").event
            if isinstance(event, e.RunCreated):
                created.setdefault(event.dag, []).append(event.run_id)
    all_of_it = [f"kafka__{number:03}" for number in range(20)]
    assert created == {DAGS[0]: all_of_it, DAGS[1]: all_of_it, DAGS[2]: ["kafka__once"]}


def test_a_trimmed_journal_is_refused(world: World) -> None:
    world.log.trim(EVENTS, 0, 3)
    with pytest.raises(resharding.JournalBroken, match="events/0/3: trimmed"):
        reshard(world.log, MemoryLog(5))


def test_from_memory_to_a_file_and_on(world: World, tmp_path: Path) -> None:
    """From any log to any other."""
    before = hashes(world.log)
    first, second = SqliteLog(tmp_path / "a.db", 2), SqliteLog(tmp_path / "b.db", 6)
    first.create_topics()
    second.create_topics()
    reshard(world.log, first)
    reshard(first, second)
    assert hashes(second) == before
    assert check_log(second).ok
    first.close()
    second.close()
