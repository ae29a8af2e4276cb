"""A living owner notices what happens to its journal behind its back, stops that shard, and goes on once it is
repaired."""

from __future__ import annotations

import pytest

from tests.runtime.test_quarantine import BROKEN, BROKEN_DAG, SOUND_DAG, ended, restart, start, world
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.log.interface import EVENTS, Append
from tidewheel.runtime.checker import Report, check_log
from tidewheel.runtime.quarantine import StoppedShard
from tidewheel.runtime.readback import ReadBack, _is_of_next_owner
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.repair import Repaired, repair
from tidewheel.runtime.repair_plan import examine
from tidewheel.runtime.shard import Shard
from tidewheel.testing.world import World
from tidewheel.wire.codec import decode_event, encode_event

__all__ = ["world"]

#: A look each second, and one at the ends each ten.
NOTICED_MS = 12_000


def stopped(world: World) -> tuple[StoppedShard, ...]:
    return world.schedulers["scheduler-0"].status.stopped


def mend(world: World, give_up: int = 0) -> Repaired:
    plan = examine(world.log, EVENTS, BROKEN)
    return repair(
        world.log,
        plan,
        actor="user:ann",
        reason="planted",
        now=world.now,
        give_up=give_up,
        pause=lambda seconds: world.advance(int(seconds * 1000)),
    )


def proved(world: World) -> Report:
    report = check_log(world.log)
    assert report.ok, report.violations[:3]
    return report


def test_a_foreign_record_stops_a_living_owner_s_shard_until_it_is_repaired(world: World) -> None:
    world.write_foreign(EVENTS, BROKEN, b"hello")
    world.advance(3_000)
    (found,) = stopped(world)
    assert (found.shard, found.fault.kind) == (BROKEN, "not_an_event")
    start(world, BROKEN_DAG, "waits")
    start(world, SOUND_DAG, "goes-on")
    world.advance(30_000)
    assert (SOUND_DAG, "goes-on") in ended(world) and (BROKEN_DAG, "waits") not in ended(world)
    assert not check_log(world.log).ok
    assert mend(world).repairs == 1
    world.advance(20_000)
    assert stopped(world) == () and (BROKEN_DAG, "waits") in ended(world)
    assert [repair.event.actor for repair in proved(world).repairs] == ["user:ann"]


def test_it_stays_stopped_although_a_checkpoint_lies_behind_the_damage(world: World) -> None:
    """The owner goes on writing for up to a second; a fold from its checkpoint would not meet the damage."""
    world.schedulers["scheduler-0"]._checkpoint_events = 1
    world.write_foreign(EVENTS, BROKEN, b"hello")
    world.ask(c.StartRun(dag=BROKEN_DAG, run_id="behind"))
    world.advance(60_000)
    assert [found.shard for found in stopped(world)] == [BROKEN]
    mend(world)
    world.advance(20_000)
    assert stopped(world) == ()
    proved(world)


def test_an_event_of_an_older_owner_s_is_a_fork(world: World) -> None:
    records = world.log.reader({(EVENTS, BROKEN): 0}).read(100, 0)
    said, before = decode_event(records[-1].value or b""), decode_event(records[-2].value or b"")
    place = {"seq": said.seq, "shard_seq": said.shard_seq, "writer": said.writer, "cause": said.cause}
    late, _ = encode_event(e.DagPaused(dag=BROKEN_DAG, at=world.now), **place, previous=before.chain)  # type: ignore[arg-type]
    world.write_foreign(EVENTS, BROKEN, late)
    world.advance(3_000)
    assert [found.fault.kind for found in stopped(world)] == ["repeat"]
    plan = examine(world.log, EVENTS, BROKEN)
    assert (plan.verdict, len(plan.branches)) == ("repairable", 0), "the claim names the owner's branch"
    mend(world)
    world.advance(20_000)
    proved(world)


def test_a_well_chained_event_that_the_owner_did_not_write_is_noticed(world: World) -> None:
    last = decode_event(world.log.reader({(EVENTS, BROKEN): 0}).read(100, 0)[-1].value or b"")
    event = e.DagPaused(dag=BROKEN_DAG, at=world.now)
    place = {"seq": last.seq + 1, "shard_seq": last.shard_seq + 1, "writer": last.writer, "cause": "timer"}
    forged, _ = encode_event(event, **place, previous=last.chain)  # type: ignore[arg-type]
    world.write_foreign(EVENTS, BROKEN, forged)
    world.advance(2_000)
    # The journal proves itself all the same, so it is what counts: the shard is folded anew, the forged event with it.
    world.advance(10_000)
    assert stopped(world) == ()
    world.ask(c.StartRun(dag=BROKEN_DAG, run_id="after"))
    proved(world)


def test_a_record_damaged_where_it_lies_is_noticed(world: World) -> None:
    world.ask(c.StartRun(dag=BROKEN_DAG, run_id="one"))
    records = world.log.reader({(EVENTS, BROKEN): 0}).read(100, 0)
    world.log.damage(EVENTS, BROKEN, records[-2].offset)
    world.advance(3_000)
    (found,) = stopped(world)
    assert found.fault.offset == records[-2].offset
    lost = examine(world.log, EVENTS, BROKEN).unproven
    assert lost >= 2


@pytest.mark.parametrize("alive", [True, False], ids=["under a living owner", "while nobody owns it"])
def test_a_journal_that_lost_its_end_is_noticed_and_what_it_answered_is_answered_again(
    world: World, alive: bool
) -> None:
    world.advance(40_000)
    keep = world.log.end_offset(EVENTS, BROKEN)
    start(world, BROKEN_DAG, "lost")
    world.settle()
    assert (BROKEN_DAG, "lost") in ended(world)
    if not alive:
        world.advance(40_000)
        world.kill_scheduler("scheduler-0")
    world.log.cut(EVENTS, BROKEN, keep)
    assert (BROKEN_DAG, "lost") not in ended(world)
    if not alive:
        world.start_scheduler("scheduler-0")
    world.advance(NOTICED_MS)
    (found,) = stopped(world)
    assert found.fault.kind == "cut"
    lost = examine(world.log, EVENTS, BROKEN).unproven
    assert lost > 0
    done = mend(world, give_up=lost)
    assert done.inputs > 0
    # The worker has had this attempt, so that its lease runs out, and the worker is asked again when it is heard.
    world.advance(180_000)
    assert stopped(world) == ()
    assert (BROKEN_DAG, "lost") in ended(world), "its request was sent again"
    proved(world)


def test_an_owner_that_was_deposed_does_not_take_its_heir_s_events_for_damage(world: World) -> None:
    world.start_scheduler("scheduler-1")
    world.advance(3_000)
    for _ in range(6):
        for instance in ("scheduler-0", "scheduler-1"):
            world.log.expel(instance)
            start(world, BROKEN_DAG, f"r{world.now}")
            start(world, SOUND_DAG, f"r{world.now}")
            other = "scheduler-1" if instance == "scheduler-0" else "scheduler-0"
            world.schedulers[other].step(0)
            world.schedulers[other].step(0)
            world.advance(1_500)
    world.check()


def test_what_is_written_faster_than_it_can_be_read_back_is_left_out_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidewheel.runtime import readback

    monkeypatch.setattr(readback, "LAG_EVENTS_MAX", 10)
    for number in range(20):
        start(world, BROKEN_DAG, f"many-{number}")
    world.settle()
    world.advance(5_000)
    assert world.schedulers["scheduler-0"]._read_back.skipped > 10
    world.check()


def test_after_a_restart_nothing_is_taken_for_damage(world: World) -> None:
    for number in range(3):
        start(world, BROKEN_DAG, f"n{number}")
        world.advance(2_000)
        restart(world)
    world.advance(20_000)
    world.check()


@pytest.mark.parametrize("takes", [1, 3])
def test_an_owner_that_wrote_nothing_in_its_term_is_followed_by_one_of_the_same_or_a_lower(
    world: World, takes: int
) -> None:
    """The late one, however often it took the shard, must not take the other's events for a journal that broke."""
    late = Shard(BROKEN)
    bring_up_to_date([late], world.log, lambda: 0)
    term = late.writer + 1
    late.writer += takes
    reading = ReadBack(world.log)
    reading.begin(late)
    head = late.heads[EVENTS]
    paused = e.DagPaused(dag=BROKEN_DAG, at=world.now)
    data, _ = encode_event(paused, seq=9, shard_seq=head.shard_seq + 1, writer=term, cause="timer", previous=head.chain)
    world.log.producer().send(Append(EVENTS, BROKEN_DAG.encode(), data, partition=BROKEN))
    assert reading.look({BROKEN: late}, 0) == {}
    # Having written in that term itself, it knows that nobody else could.
    late.heads[EVENTS] = head._replace(writer=late.writer)
    again = ReadBack(world.log)
    again.begin(late)
    assert again.look({BROKEN: late}, 0)[BROKEN].kind == "not_what_was_written"


def test_a_shard_that_went_and_came_between_two_looks_is_compared_from_where_it_came(world: World) -> None:
    """It may go while it is being brought up to date, and then nobody says so. What others wrote is not missing."""
    shard = Shard(BROKEN)
    back = ReadBack(world.log)
    bring_up_to_date([shard], world.log, lambda: world.now)
    back.begin(shard)
    assert back.look({BROKEN: shard}, world.now) == {}
    for name in ("others", "ours"):
        start(world, BROKEN_DAG, name)
        world.settle()
        world.now += 5_000
        assert back.look({}, world.now) == {}
    bring_up_to_date([shard], world.log, lambda: world.now)
    back.begin(shard)
    start(world, BROKEN_DAG, "later")
    world.settle()
    bring_up_to_date([shard], world.log, lambda: world.now)
    assert back.look({BROKEN: shard}, world.now + 5_000) == {}
    assert back.compared > 0


@pytest.mark.parametrize(
    ("ours", "written", "found", "is_next"),
    [
        (12, 12, 13, True),
        (12, 12, 12, False),
        (12, 12, 11, False),
        # Terms 13 and 14 were ours and left no trace: another owner counts on from 12, or is the one of term 12.
        (14, 12, 13, True),
        (14, 12, 14, True),
        (14, 12, 12, True),
    ],
)
def test_a_later_owner_is_known_by_its_term(ours: int, written: int, found: int, is_next: bool) -> None:
    shard = Shard(0)
    shard.writer = ours
    shard.heads[EVENTS] = shard.heads[EVENTS]._replace(writer=written)
    assert _is_of_next_owner(found, shard) is is_next
