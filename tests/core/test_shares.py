"""How much of a pool one DAG may hold, and that its share holds up nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from tests.core.scenes import NOW, RULES, enqueued, granted, joined, pool
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.decide import decide
from tidewheel.core.fold import fold
from tidewheel.core.shares import capacity_needed, capacity_of, slots_of
from tidewheel.core.state import Pool
from tidewheel.testing.playbook import Given, assert_survives_snapshot

ALLOCATE = c.AllocateSlots(pool="default")


def backlog(dag: str, count: int, **more: object) -> list[e.TaskEnqueued]:
    return [enqueued(dag, f"t{number}", **more) for number in range(count)]


def taken(scene: Given) -> Counter[str]:
    """How many attempts of each DAG get slots now."""
    decision = scene.when(ALLOCATE, at=NOW).decision
    return Counter(event.dag for event in decision.events if isinstance(event, e.SlotGranted))


def limit(slots: int | None) -> e.PoolConfigured:
    return e.PoolConfigured(pool="default", at=NOW, slots=slots)


def test_a_fan_out_takes_its_share_and_everybody_else_starts_at_once() -> None:
    scene = pool(joined(slots=100), *backlog("fan", 1_000, max_pool_share=30), *backlog("late", 5))
    assert taken(scene) == {"fan": 30, "late": 5}


def test_a_dag_at_its_share_is_passed_over_whatever_its_priority() -> None:
    busy = [enqueued("a", "t1"), granted("a", "t1")]
    scene = pool(joined(slots=2), *busy, enqueued("a", "t2", priority=9, max_pool_share=50), enqueued("b"))
    assert taken(scene) == {"b": 1}


def test_what_it_gives_back_it_may_take_again() -> None:
    scene = pool(joined(slots=4), *backlog("a", 9, max_pool_share=50))
    first = scene.when(ALLOCATE, at=NOW)
    back = first.when(c.ReleaseSlot(pool="default", dag="a", run_id="r", task="t0", attempt=1), at=NOW)
    assert taken(Given(back.decision.state, RULES)) == {"a": 1}


def test_one_slot_is_always_its() -> None:
    """A share of less than one slot would be a DAG that never runs."""
    assert taken(pool(joined(slots=2), *backlog("a", 9, max_pool_share=1))) == {"a": 1}


def test_an_attempt_wider_than_the_share_goes_alone() -> None:
    wide = enqueued("a", "wide", pool_slots=3, max_pool_share=30, logical_date=-1)
    assert taken(pool(joined(slots=10), *backlog("a", 9, max_pool_share=30), wide)) == {"a": 1}


def test_the_share_is_of_what_workers_offer_and_of_no_more_than_the_limit() -> None:
    waiting = backlog("a", 20, max_pool_share=50)
    assert taken(pool(joined(slots=12), *waiting)) == {"a": 6}
    assert taken(pool(joined(slots=12), limit(8), *waiting)) == {"a": 4}
    assert taken(pool(joined(slots=12), limit(1_000), *waiting)) == {"a": 6}


def test_it_grows_and_shrinks_with_the_pool() -> None:
    scene = pool(joined("w1", slots=4), *backlog("a", 20, max_pool_share=50))
    first = scene.when(ALLOCATE, at=NOW)
    grown = fold(first.decision.state, joined("w2", slots=4))
    assert taken(Given(grown, RULES)) == {"a": 2}
    shrunk = fold(grown, limit(2))
    assert taken(Given(shrunk, RULES)) == {}
    assert shrunk.live["a"] == 2, "what it holds is not taken away"


def test_the_first_attempt_in_its_queue_says_what_the_share_is() -> None:
    """Runs of an older version wait beside those of a newer one."""
    older = enqueued("a", "old", logical_date=-1, max_pool_share=20)
    scene = pool(joined(slots=10), older, *backlog("a", 9, max_pool_share=50))
    assert taken(scene) == {"a": 5}


@pytest.mark.parametrize(
    ("share", "live", "slots", "needed"),
    [(None, 9, 9, 0), (30, 0, 9, 0), (30, 2, 1, 10), (30, 3, 1, 14), (100, 4, 2, 6)],
)
def test_the_capacity_that_a_share_asks_for(share: int | None, live: int, slots: int, needed: int) -> None:
    assert capacity_needed(share, live, slots) == needed


@forall(st.integers(1, 100), st.integers(1, 1_000), st.integers(1, 1_000))
def test_the_least_capacity_is_the_least(share: int, live: int, capacity: int) -> None:
    """The two ways to say it agree: one more slot is allowed up to the slots that the share comes to."""
    assert (capacity_needed(share, live, 1) <= capacity) == (live + 1 <= share * capacity // 100)
    assert slots_of(share, capacity) >= 1


def test_capacity_is_the_smaller_of_limit_and_offer() -> None:
    assert [capacity_of(None, 5), capacity_of(3, 5), capacity_of(9, 5), capacity_of(0, 5)] == [5, 3, 5, 0]


DAG = st.sampled_from("abcd")
TASK = st.sampled_from([f"t{number}" for number in range(6)])
WORKER = st.sampled_from(["w1", "w2", "w3"])
#: What happens to a pool, by DAGs with a share and without, while it grows and shrinks.
COMMANDS = st.one_of(
    st.builds(
        c.EnqueueTask,
        pool=st.just("default"),
        dag=DAG,
        run_id=st.just("r"),
        task=TASK,
        attempt=st.just(1),
        pool_slots=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(0, 1),
        max_pool_share=st.sampled_from([None, 1, 25, 50, 75, 100]),
    ),
    st.builds(
        c.ReleaseSlot,
        pool=st.just("default"),
        dag=DAG,
        run_id=st.just("r"),
        task=TASK,
        attempt=st.just(1),
        worker_silent=st.booleans(),
    ),
    st.builds(c.JoinPool, pool=st.just("default"), worker=WORKER, slots=st.integers(1, 6), mail_partition=st.just(0)),
    st.builds(c.LeavePool, pool=st.just("default"), worker=WORKER),
    st.builds(c.RenewWorker, pool=st.just("default"), worker=WORKER, mail_partition=st.just(0)),
    st.builds(c.ConfigurePool, pool=st.just("default"), slots=st.none() | st.integers(0, 12)),
    st.just(ALLOCATE),
)


def allowed(state: Pool) -> set[str]:
    """By a look at everybody: the DAGs whose share lets their next attempt go."""
    offered = sum(worker.slots for worker in state.workers.values() if not worker.suspended)
    there = offered if state.slots is None else min(offered, state.slots)
    found = set()
    for dag in {key[0] for key in state.waiting}:
        live = sum(lease.pool_slots for lease in state.leases.values() if lease.key[0] == dag)
        first = min((item for item in state.waiting.values() if item.key[0] == dag), key=lambda item: item.place)
        share = first.max_pool_share
        if share is None or not live or (live + first.pool_slots) * 100 <= share * there:
            found.add(dag)
    return found


@forall(st.lists(COMMANDS, max_size=80))
def test_whatever_happens_those_who_may_go_are_those_whose_share_lets_them(commands: list[c.Command]) -> None:
    state = Pool(pool="default")
    for command in commands:
        decision = decide(state, command, NOW, RULES)
        for event in decision.events:
            if isinstance(event, e.SlotGranted):
                assert event.dag in allowed(state)
            state = fold(state, event)
            assert {place[4] for place in state.heads} == allowed(state)
        assert_survives_snapshot(state)
        if command is ALLOCATE:
            assert_nothing_idle(state)


def assert_nothing_idle(state: Pool) -> None:
    """No slot is free for whoever is next: shares are no reason to leave slots idle that another DAG could take."""
    if not state.heads or not state.free:
        return
    widest = max(worker.slots for worker in state.workers.values())
    fitting = [
        item for place in state.heads if (item := state.waiting[state.queues[place[4]].first()[3]]).pool_slots <= widest
    ]
    if fitting:
        room = -state.free.first()[0] if state.slots is None else min(-state.free.first()[0], state.slots - state.used)
        assert fitting[0].pool_slots > room


@forall(st.integers(2, 6), st.integers(1, 40), st.lists(st.sampled_from([None, 10, 50]), min_size=6, max_size=6))
def test_dags_that_want_all_get_alike_as_far_as_their_shares_allow(
    dags: int, slots: int, shares: list[int | None]
) -> None:
    names = "abcdef"[:dags]
    waiting: Iterable[e.Event] = [
        event for dag, share in zip(names, shares, strict=False) for event in backlog(dag, slots, max_pool_share=share)
    ]
    got = taken(pool(joined(slots=slots), *waiting))
    most = {dag: slots if share is None else slots_of(share, slots) for dag, share in zip(names, shares, strict=False)}
    assert all(got[dag] <= most[dag] for dag in names)
    unbounded = [got[dag] for dag in names if got[dag] < most[dag]]
    if unbounded:
        assert sum(got.values()) == slots, "nothing is left while somebody may take it"
        assert max(unbounded) - min(unbounded) <= 1
        assert max(got.values()) <= max(unbounded) + 1, "nobody below their share has less than another"
