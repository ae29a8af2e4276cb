"""Who serves a pool, and who goes next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from tests.core.scenes import NOW, RULES, enqueued, granted, joined, pool
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide import decide
from tidewheel.core.mail import WorkerUnknown, WorkerWelcome
from tidewheel.core.state import Pool
from tidewheel.testing.playbook import Given, assert_survives_snapshot, given

ALLOCATE = c.AllocateSlots(pool="default")


def release(dag: str, name: str = "t", **more: Any) -> c.ReleaseSlot:
    return c.ReleaseSlot(pool="default", dag=dag, run_id="r", task=name, attempt=1, **more)


def who(scene: Given) -> list[tuple[str, str]]:
    """The attempts that get slots now, in order."""
    decision = scene.when(ALLOCATE, at=NOW).decision
    return [(event.dag, event.task) for event in decision.events if isinstance(event, e.SlotGranted)]


def test_a_free_slot_goes_to_whoever_waits_and_to_the_dag_as_an_offer() -> None:
    outcome = pool(joined(), enqueued("a")).when(ALLOCATE, at=NOW).then(granted("a"))
    outcome.asks(c.GrantSlot(dag="a", run_id="r", task="t", attempt=1, pool="default", worker="w1", mail_partition=0))


def test_without_a_worker_everybody_waits() -> None:
    assert who(pool(enqueued("a"))) == []


def test_priority_goes_before_everything() -> None:
    assert who(pool(joined(), enqueued("a"), enqueued("b", priority=5))) == [("b", "t")]


def test_the_dag_with_fewest_slots_goes_first() -> None:
    scene = pool(joined(slots=2), enqueued("a", "t1"), granted("a", "t1"), enqueued("a", "t2"), enqueued("b", "t3"))
    assert who(scene) == [("b", "t3")]


def test_slots_are_shared_evenly_among_dags_however_many_wait() -> None:
    backlog = [enqueued("a", f"t{number}") for number in range(20)]
    scene = pool(joined(slots=6), *backlog, *[enqueued("b", f"t{number}") for number in range(20)])
    assert sorted(dag for dag, _ in who(scene)) == ["a"] * 3 + ["b"] * 3


def test_within_a_dag_the_older_logical_date_goes_first_then_arrival() -> None:
    scene = pool(
        joined(slots=3),
        enqueued("a", "late", logical_date=2),
        enqueued("a", "x", logical_date=1),
        enqueued("a", "y", logical_date=1),
    )
    assert who(scene) == [("a", "x"), ("a", "y"), ("a", "late")]


def test_the_limit_of_the_pool_holds_whatever_the_workers_offer() -> None:
    limit = e.PoolConfigured(pool="default", at=NOW, slots=1)
    scene = pool(limit, joined(slots=4), enqueued("a", "t1"), enqueued("a", "t2"))
    assert who(scene) == [("a", "t1")]


def test_a_wide_attempt_keeps_its_turn_until_it_fits() -> None:
    """C076: what frees up is kept for the wide one; narrow ones behind it wait."""
    busy = [enqueued("n", "t1"), granted("n", "t1"), enqueued("n", "t2"), granted("n", "t2")]
    scene = pool(joined(slots=3), *busy, enqueued("w", "wide", pool_slots=3), enqueued("n", "t3"))
    assert who(scene) == []
    first = scene.when(release("n", "t1"), at=NOW)
    assert who(Given(first.decision.state, RULES)) == []
    second = first.when(release("n", "t2"), at=NOW)
    assert who(Given(second.decision.state, RULES)) == [("w", "wide")]


def test_who_gives_back_what_is_kept_for_a_wide_attempt_does_not_come_before_it_by_that() -> None:
    """C076: not for holding less, and not for an older date; only once the wide one has gone."""
    busy = [enqueued("n", "t1"), granted("n", "t1"), enqueued("n", "t2"), granted("n", "t2")]
    behind = [enqueued("n", "t3", logical_date=-9), enqueued("n", "t4", logical_date=-9)]
    scene = pool(joined(slots=3), *busy, enqueued("w", "wide", pool_slots=3), *behind)
    outcome = scene.when(release("n", "t1"), at=NOW).when(release("n", "t2"), at=NOW)
    assert outcome.decision.state.used == 0
    given_to = outcome.when(ALLOCATE, at=NOW).then(granted("w", "wide"))
    freed = given_to.when(release("w", "wide"), at=NOW)
    assert who(Given(freed.decision.state, RULES)) == [("n", "t3"), ("n", "t4")]


def test_a_dag_that_holds_less_still_goes_before_a_wide_attempt_that_waits() -> None:
    """Kept is what others give back; what fairness gives to whoever comes new is theirs."""
    busy = [enqueued("w", "t1"), granted("w", "t1"), enqueued("n", "t2"), granted("n", "t2")]
    scene = pool(joined(slots=3), *busy, enqueued("w", "wide", pool_slots=2), enqueued("n", "t3"))
    freed = scene.when(release("n", "t2"), at=NOW)
    new = given(freed.decision.state, enqueued("x"), rules=RULES)
    assert who(new) == [("x", "t")]


def test_a_wide_attempt_without_a_worker_wide_enough_keeps_nothing_for_itself() -> None:
    """Its worker leaves while it waits; what others gave back is theirs no more."""
    busy = [enqueued("n", "t1"), granted("n", "t1"), enqueued("m", "t2"), granted("m", "t2", worker="w2")]
    wide = [joined(slots=1), joined("w2", slots=3), *busy, enqueued("w", "wide", pool_slots=3), enqueued("n", "t3")]
    freed = pool(*wide).when(release("n", "t1"), at=NOW)
    assert (freed.decision.state.turn, dict(freed.decision.state.given_back)) == (("w", "r", "wide", 1), {"n": 1})
    assert who(Given(freed.decision.state, RULES)) == []
    gone = freed.when(c.LeavePool(pool="default", worker="w2"), at=NOW)
    assert (gone.decision.state.turn, dict(gone.decision.state.given_back)) == (None, {})
    assert who(Given(gone.decision.state, RULES)) == [("n", "t3")]


def test_an_attempt_wider_than_the_pool_is_refused_with_both_numbers() -> None:
    """C068."""
    limit = e.PoolConfigured(pool="default", at=NOW, slots=2)
    outcome = pool(limit, joined(slots=8), enqueued("a", pool_slots=3)).when(ALLOCATE, at=NOW).then(e.SlotRefused)
    (refusal,) = outcome.decision.commands
    assert isinstance(refusal, c.RefuseSlot)
    assert refusal.reason == "it takes 3 slots, and pool 'default' has 2"


def test_a_pool_of_no_slots_is_closed_and_refuses_nobody() -> None:
    closed = e.PoolConfigured(pool="default", at=NOW, slots=0)
    scene = pool(joined(), closed, enqueued("a"))
    scene.when(ALLOCATE, at=NOW).then()
    opened = scene.when(c.ConfigurePool(pool="default", slots=1), at=NOW).then(e.PoolConfigured)
    assert who(Given(opened.decision.state, RULES)) == [("a", "t")]


def test_an_attempt_wider_than_every_worker_does_not_hold_up_the_others() -> None:
    assert who(pool(joined(slots=2), enqueued("a", pool_slots=3), enqueued("b"))) == [("b", "t")]


def test_enqueueing_twice_is_once() -> None:
    command = c.EnqueueTask(pool="default", dag="a", run_id="r", task="t", attempt=1)
    pool(enqueued("a")).when(command, at=NOW).then()
    outcome = pool(joined(), enqueued("a"), granted("a")).when(command, at=NOW).then()
    # The DAG has forgotten the offer, if it asks again.
    outcome.asks(c.GrantSlot(dag="a", run_id="r", task="t", attempt=1, pool="default", worker="w1", mail_partition=0))


def test_releasing_twice_is_once() -> None:
    """C109: a count never falls below zero."""
    scene = pool(joined(), enqueued("a"), granted("a"))
    outcome = scene.when(release("a"), at=NOW).then(e.SlotReleased)
    outcome.when(release("a"), at=NOW).then()
    assert outcome.decision.state.used == 0


def test_a_waiting_attempt_can_be_withdrawn() -> None:
    outcome = pool(enqueued("a")).when(release("a"), at=NOW).then(e.SlotReleased)
    assert not outcome.decision.state.waiting


def test_a_silent_worker_gets_nothing_until_it_renews() -> None:
    scene = pool(joined(slots=2), enqueued("a", "t1"), granted("a", "t1"), enqueued("b", "t2"))
    outcome = scene.when(release("a", "t1", worker_silent=True), at=NOW).then(e.SlotReleased, e.WorkerSuspended)
    assert who(Given(outcome.decision.state, RULES)) == []
    renewed = outcome.when(c.RenewWorker(pool="default", worker="w1", mail_partition=0), at=NOW).then(e.WorkerRenewed)
    assert who(Given(renewed.decision.state, RULES)) == [("b", "t2")]


def test_joining_welcomes_and_joining_again_keeps_what_is_held() -> None:
    join = c.JoinPool(pool="default", worker="w1", slots=2, mail_partition=0)
    outcome = pool().when(join, at=NOW).then(e.WorkerJoined)
    assert isinstance(outcome.decision.mail[0], WorkerWelcome)
    scene = pool(joined(slots=1), enqueued("a"), granted("a"), enqueued("b", "t2"), enqueued("c", "t3"))
    again = scene.when(join, at=NOW).then(e.WorkerJoined)
    assert len(who(Given(again.decision.state, RULES))) == 1


def test_renewing_writes_an_event_only_past_half_the_term() -> None:
    renew = c.RenewWorker(pool="default", worker="w1", mail_partition=0)
    pool(joined()).when(renew, at=NOW + 29_999).then()
    pool(joined()).when(renew, at=NOW + 30_000).then(e.WorkerRenewed)


def test_an_unknown_worker_is_told_to_join() -> None:
    outcome = pool().when(c.RenewWorker(pool="default", worker="w9", mail_partition=3), at=NOW).then()
    assert outcome.decision.mail == [WorkerUnknown(receiver="w9", partition=3, pool="default")]


def test_a_worker_that_is_not_heard_from_leaves_and_its_leases_stay_counted() -> None:
    scene = pool(joined(), enqueued("a"), granted("a"))
    expire = c.ExpireWorker(pool="default", worker="w1")
    scene.when(expire, at=NOW + 59_999).then()
    outcome = scene.when(expire, at=NOW + 60_000).then(e.WorkerLeft)
    assert outcome.decision.state.used == 1
    assert outcome.when(release("a"), at=NOW + 60_000).decision.state.used == 0


@pytest.mark.parametrize("slots", [0, -1])
def test_impossible_numbers_are_refused(slots: int) -> None:
    join = c.JoinPool(pool="default", worker="w1", slots=slots, mail_partition=0)
    pool().when(join, at=NOW).then().rejected("1 slot or more")
    if slots < 0:
        pool().when(c.ConfigurePool(pool="default", slots=slots), at=NOW).then().rejected("0 slots or more")


COMMANDS = st.one_of(
    st.builds(
        c.EnqueueTask,
        pool=st.just("default"),
        dag=st.sampled_from("abc"),
        run_id=st.just("r"),
        task=st.sampled_from(["t1", "t2", "t3", "t4"]),
        attempt=st.integers(1, 2),
        pool_slots=st.integers(1, 3),
        priority=st.integers(0, 2),
        logical_date=st.integers(0, 3),
        max_pool_share=st.sampled_from([None, 1, 30, 50, 100]),
    ),
    st.builds(
        c.ReleaseSlot,
        pool=st.just("default"),
        dag=st.sampled_from("abc"),
        run_id=st.just("r"),
        task=st.sampled_from(["t1", "t2", "t3", "t4"]),
        attempt=st.integers(1, 2),
        worker_silent=st.booleans(),
    ),
    st.builds(
        c.JoinPool,
        pool=st.just("default"),
        worker=st.sampled_from(["w1", "w2"]),
        slots=st.integers(1, 4),
        mail_partition=st.just(0),
    ),
    st.builds(c.LeavePool, pool=st.just("default"), worker=st.sampled_from(["w1", "w2"])),
    st.builds(c.RenewWorker, pool=st.just("default"), worker=st.sampled_from(["w1", "w2"]), mail_partition=st.just(0)),
    st.builds(c.ConfigurePool, pool=st.just("default"), slots=st.none() | st.integers(0, 5)),
    st.just(ALLOCATE),
)


@forall(st.lists(COMMANDS, max_size=60))
def test_whatever_is_asked_occupancy_is_the_leases_and_nobody_gets_more_than_there_is(
    commands: list[c.Command],
) -> None:
    state = Pool(pool="default")
    for command in commands:
        decision = decide(state, command, NOW, RULES)
        before, state = state, decision.state
        assert_survives_snapshot(state)
        assert state.used == sum(lease.pool_slots for lease in state.leases.values())
        if state.used > before.used:
            assert state.slots is None or state.used <= state.slots
            grants = [event for event in decision.events if isinstance(event, e.SlotGranted)]
            for event in grants:
                held = sum(lease.pool_slots for lease in state.leases.values() if lease.worker == event.worker)
                assert held <= state.workers[event.worker].slots
