"""The group's position comes back older than the journal: what the journal answers is not answered again."""

from __future__ import annotations

import json

import msgspec
import pytest
from structlog.testing import capture_logs

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.fold import run as fold_run
from tidewheel.core.rules import Rules
from tidewheel.core.workflow import Concurrency, Run, Task, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, DEAD_LETTERS, EVENTS, JOURNALS, POOL_EVENTS, TRIGGERS, Append
from tidewheel.log.partition import partition_of
from tidewheel.runtime import scheduler
from tidewheel.runtime.answered import Answered
from tidewheel.runtime.backlog import Extent, read_note, still_waiting
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import Shard
from tidewheel.testing.world import Outcome, World
from tidewheel.wire.codec import encode

MINUTE = 60_000
#: Of two shards, some on each.
DAGS = ("one", "four", "nine")
TASKS = (Task(id="a", action=Run(command="true")), Task(id="b", action=Run(command="true"), needs=("a",)))


def a_world(*, partitions: int = 1, checkpoint_events: int = 50, **bounds: int) -> World:
    evaluator = CelEvaluator()
    rules = Rules(evaluator=evaluator, **bounds)  # type: ignore[arg-type]
    return World(evaluator, partitions=partitions, checkpoint_events=checkpoint_events, rules=rules)


def a_run(dag: str) -> e.RunCreated:
    return e.RunCreated(dag=dag, run_id="r", at=0, actor="kafka:triggers", version="v1", kind="kafka")


def trigger(world: World, dag: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        value = json.dumps({"dag": dag, "id": f"{number:04}"}).encode()
        world.producer.send(Append(TRIGGERS, dag.encode(), value))


def created(world: World, dag: str) -> list[str]:
    return [event.run_id for event in world.events(e.RunCreated) if event.dag == dag]  # type: ignore[union-attr]


def lose_commits(world: World, commits: int) -> None:
    """The broker dies hard: positions come back old, and the schedulers with nothing in memory."""
    lost = [world.log.lose_commits(shard, commits) for shard in range(world.log.partitions)]
    assert all(lost), "there were not that many"
    for name in list(world.schedulers):
        world.kill_scheduler(name)
        world.start_scheduler(name)


def positions(world: World, shard: int = 0) -> tuple[int | None, int | None]:
    found = world.log.committed(shard)
    return found[COMMANDS], found[TRIGGERS]


def ends(world: World) -> list[int]:
    """Of every journal."""
    return [world.log.end_offset(topic, number) for topic in JOURNALS for number in range(world.log.partitions)]


# --- what a cause says -----------------------------------------------------------------------------------------------


def test_only_causes_that_are_the_shards_own_inputs_count() -> None:
    answered = Answered(3)
    for cause in (
        "timer",
        "allocation",
        "repair",
        "",
        "commands/2/99",
        "commands/33/99",
        "before/commands/3/99",
        "events/3/99",
        "commands/3/x",
        "triggers/2/99",
    ):
        answered.note(EVENTS, a_run("etl"), cause)
    assert answered == Answered(3)
    answered.note(EVENTS, a_run("etl"), "commands/3/17")
    answered.note(EVENTS, a_run("etl"), "timer")
    answered.note(POOL_EVENTS, e.WorkerLeft(pool="default", at=0, worker="w1", reason=""), "commands/3/12")
    assert [answered.covers_command(offset) for offset in (0, 12, 17, 18)] == [True, True, True, False]


def test_triggers_are_in_the_order_of_each_dag() -> None:
    answered = Answered(0)
    answered.note(EVENTS, a_run("calm"), "triggers/0/500")
    answered.note(EVENTS, a_run("flooded"), "triggers/0/20")
    assert answered.covers_trigger("calm", 500)
    assert not answered.covers_trigger("flooded", 21), "it was passed over, and waits"
    assert not answered.covers_trigger("other", 0)
    assert not answered.covers_command(0)


def test_what_follows_from_a_trigger_for_others_says_nothing_of_theirs() -> None:
    answered = Answered(0)
    answered.note(POOL_EVENTS, e.WorkerLeft(pool="etl", at=0, worker="w1", reason=""), "triggers/0/17")
    answered.note(EVENTS, e.RunStarted(dag="etl", run_id="r", at=0), "triggers/0/17")
    answered.note(EVENTS, msgspec.structs.replace(a_run("etl"), kind="manual"), "triggers/0/17")
    assert answered == Answered(0)


def test_what_a_topic_cannot_hold_is_not_believed() -> None:
    answered = Answered(0, {EVENTS: 90, POOL_EVENTS: 40}, {"old": 7, "older": 3})
    answered.believe({COMMANDS: 91, TRIGGERS: 8})
    assert answered == Answered(0, {EVENTS: 90, POOL_EVENTS: 40}, {"old": 7, "older": 3})
    answered.believe({COMMANDS: 90, TRIGGERS: 7})
    assert answered == Answered(0, {POOL_EVENTS: 40}, {"older": 3})


def test_inputs_laid_out_anew_have_the_last_word() -> None:
    answered = Answered(0, {EVENTS: 90}, {"etl": 70})
    answered.note(EVENTS, a_run("etl"), "commands/0/4")
    answered.note(EVENTS, a_run("etl"), "triggers/0/2")
    assert not answered.covers_command(5)
    assert not answered.covers_trigger("etl", 3)


def test_of_what_a_note_says_the_answered_part_does_not_wait() -> None:
    answered = Answered(0, {}, {"part": 15, "all": 29, "beyond": 60})
    note = {name: Extent(10, 29) for name in ("none", "part", "all", "beyond")}
    assert still_waiting(note, answered) == {"none": Extent(10, 29), "part": Extent(16, 29)}


# --- the engine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [1, 7, 60])
@pytest.mark.parametrize("checkpoint_events", [10, 100_000])
def test_reports_requests_and_triggers_read_again_come_to_no_event(commits: int, checkpoint_events: int) -> None:
    world = a_world(partitions=2, checkpoint_events=checkpoint_events)
    world.add_worker("w1", behaviour=lambda _: Outcome(takes_ms=20_000))
    world.add_worker("w2", behaviour=lambda work: Outcome(takes_ms=5_000, fails="exception"))
    for name in DAGS:
        world.deploy(Workflow(id=name, tasks=TASKS))
    for number in range(20):
        for name in DAGS:
            trigger(world, name, number, 1)
            world.send(c.StartRun(dag=name))
            world.send(c.CancelRun(dag=name, run_id=f"kafka__{number - 2:04}"))
        # Late reports, which are refused, and refused once only.
        late = ("one", f"kafka__{number - 2:04}", "a", 1)
        world.send(
            c.ReportSuccess(dag=late[0], run_id=late[1], task="a", attempt=1, worker="w9", started_at=0, ended_at=0)
        )
        world.advance(7_000)
    before, written = [positions(world, shard) for shard in range(2)], ends(world)
    runs = {name: created(world, name) for name in DAGS}
    lose_commits(world, commits)
    assert [positions(world, shard) for shard in range(2)] < before
    world.settle()
    assert ends(world) == written, "the same inputs, and nothing that is due: no event"
    assert [positions(world, shard) for shard in range(2)] >= before, "the position is put right at once"
    world.advance(20 * MINUTE, step_ms=5_000)
    assert {name: created(world, name) for name in runs} == runs
    assert all(len(found) == 40 for found in runs.values())
    assert world.check().ok


def test_it_is_said_once_and_not_with_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "BATCH_RECORDS", 2)
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="one", tasks=TASKS))
    for _ in range(10):
        world.send(c.StartRun(dag="one"))
        world.advance(2_000)
    with capture_logs() as said:
        lose_commits(world, 20)
        world.settle()
    first, last = [entry for entry in said if "that the journal answers" in entry["event"]]
    assert first["log_level"] == "warning" and last["inputs"] > 8


def test_without_that_the_checker_finds_inputs_answered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.add_worker(behaviour=lambda _: Outcome(takes_ms=20_000))
    world.deploy(Workflow(id="one", tasks=TASKS))
    for _ in range(4):
        world.send(c.StartRun(dag="one"))
        world.advance(30_000)
    monkeypatch.setattr(Answered, "covers_command", lambda *_: False)
    lose_commits(world, 7)
    world.settle()
    assert len(created(world, "one")) > 4, "a request without a name is another run"
    assert any("is answered again" in violation.message for violation in check_log(world.log).violations)


def test_a_restart_knows_it_from_its_snapshots_too() -> None:
    world = a_world(checkpoint_events=20)
    world.add_worker()
    for name in ("early", "late"):
        world.deploy(Workflow(id=name, tasks=TASKS))
    trigger(world, "early", 0, 3)
    world.settle()
    for number in range(30):
        trigger(world, "late", number, 1)
        world.ask(c.StartRun(dag="late", run_id=f"r{number}"))
    restarted, alone = Shard(0), Shard(0)
    assert bring_up_to_date([restarted], world.log, lambda: 0) < bring_up_to_date(
        [alone], world.log, lambda: 0, snapshots=False
    )
    assert restarted.answered == alone.answered
    assert restarted.answered.triggers == {"early": 2, "late": 32}
    assert set(restarted.answered.commands) == {EVENTS, POOL_EVENTS}


def test_a_flood_that_waits_is_one_run_each_in_order_whatever_note_comes_back() -> None:
    world = a_world(waiting_runs_max=5)
    world.add_worker(slots=10, behaviour=lambda _: Outcome(takes_ms=MINUTE))
    task = Task(id="t", action=Run(command="true"))
    world.deploy(Workflow(id="flood", tasks=(task,), concurrency=Concurrency(max_runs=2)))
    world.deploy(Workflow(id="calm", tasks=(task,)))
    for number in range(12):
        trigger(world, "flood", number * 10, 10)
        trigger(world, "calm", number, 1)
        world.advance(2 * MINUTE)
        if number % 3 == 2:
            waiting = read_note(world.log.noted(0)).postponed["flood"]
            lose_commits(world, 1 + number)
            world.settle()
            again = read_note(world.log.noted(0)).postponed["flood"]
            assert (again.first, again.last) == (waiting.first, waiting.last)
    while len(created(world, "flood")) < 120:
        world.advance(MINUTE)
    world.advance(10 * MINUTE)
    assert created(world, "flood") == [f"kafka__{number:04}" for number in range(120)]
    assert created(world, "calm") == [f"kafka__{number:04}" for number in range(12)]
    assert world.log.noted(0) == ""
    world.check()


def test_a_trigger_is_the_same_run_even_when_its_id_is_long_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of ended runs are remembered for a while only: what protects a trigger behind that is the journal."""
    monkeypatch.setattr(fold_run, "REMEMBERED_RUNS", 3)
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="etl", tasks=TASKS))
    for number in range(12):
        trigger(world, "etl", number, 1)
        world.settle()
    lose_commits(world, 12)
    world.settle()
    assert created(world, "etl") == [f"kafka__{number:04}" for number in range(12)]
    monkeypatch.setattr(Answered, "covers_trigger", lambda *_: False)
    lose_commits(world, 5)
    world.settle()
    assert len(created(world, "etl")) > 12, "ids alone do not"


def test_within_what_is_remembered_a_triggers_id_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="etl", tasks=TASKS))
    trigger(world, "etl", 0, 5)
    for _ in range(5):
        world.producer.send(Append(TRIGGERS, b"etl", b'{"dag": "etl"}'))
    world.settle()
    before = created(world, "etl")
    assert len(before) == 10
    monkeypatch.setattr(Answered, "covers_trigger", lambda *_: False)
    lose_commits(world, 2)
    world.settle()
    assert created(world, "etl") == before
    world.check()


def test_inputs_on_offsets_that_a_lost_end_leaves_free_are_read() -> None:
    """The broker has lost the end of the inputs too: what comes there next is new, whatever the journal answers."""
    world = a_world()
    world.add_worker()
    world.deploy(Workflow(id="etl", tasks=TASKS))
    for number in range(5):
        assert world.ask(c.StartRun(dag="etl", run_id=f"r{number}")).created
    lose_commits(world, 12)
    position = positions(world)[0]
    assert position is not None
    world.log.cut(COMMANDS, 0, position)
    assert world.ask(c.StartRun(dag="etl", run_id="new")).created
    world.settle()
    assert created(world, "etl")[-1] == "new"


def keyed_wrongly(world: World, command: c.StartRun) -> int:
    right = partition_of(command.dag.encode(), world.log.partitions)
    wrong = (right + 1) % world.log.partitions
    world.producer.send(Append(COMMANDS, command.dag.encode(), encode(command), partition=wrong))
    return wrong


def test_a_request_that_is_sent_on_twice_is_one_run() -> None:
    world = a_world(partitions=2)
    world.deploy(Workflow(id="etl", tasks=TASKS))
    wrong = keyed_wrongly(world, c.StartRun(dag="etl"))
    world.settle()
    (run_id,) = created(world, "etl")
    assert run_id.startswith(f"manual__commands.{wrong}.")
    lose_commits(world, 1)
    world.settle()
    assert created(world, "etl") == [run_id]
    world.check()


@pytest.mark.parametrize(
    "ask", [c.CancelRun(dag="etl", run_id="nobody"), c.StartRun(dag="etl", run_id="r", inputs="[")]
)
def test_what_came_to_no_event_is_refused_again_and_no_more(ask: c.Command) -> None:
    world = a_world()
    world.deploy(Workflow(id="etl", tasks=TASKS))
    world.send(ask)
    world.settle()
    written, letters = ends(world), world.log.end_offset(DEAD_LETTERS, 0)
    lose_commits(world, 1)
    world.settle()
    assert ends(world) == written
    assert world.log.end_offset(DEAD_LETTERS, 0) >= letters
    world.check()
