"""Why an attempt has no slot: one test a reason, on rows as the read model has them."""

from __future__ import annotations

from typing import Any

from tidewheel.core.backfill import PRIORITY_DROP
from tidewheel_projections.views import PoolRow, WorkerRow
from tidewheel_projections.waiting import PlaceInPool, PoolHead, PoolHolder
from tidewheel_services.why.pools import PoolFacts, why_in_pool

AT = "2026-01-05T00:00:00.000Z"


def worker(name: str, slots: int, used: int = 0, state: str = "active", reason: str = "") -> WorkerRow:
    more = {"host": "h", "mail_partition": 0, "joined_at": AT, "renewed_at": AT, "expires_at": AT, "left_at": None}
    return WorkerRow(pool="p", worker=name, state=state, slots=slots, used=used, reason=reason, shard_seq=1, **more)


def pool(*workers: WorkerRow, slots: int | None = None, waiting: int = 3, **more: Any) -> PoolFacts:
    used = sum(one.used for one in workers)
    row = PoolRow(
        pool="p",
        slots=slots,
        description="",
        used=used,
        held=used,
        waiting=waiting,
        updated_at=AT,
        shard_seq=1,
        workers=len(workers),
        worker_slots=sum(one.slots for one in workers),
    )
    return PoolFacts(name="p", pool=row, workers=workers, **more)


def head(
    dag: str, slots: int = 1, held: int = 0, share: int | None = None, task: str = "a", priority: int = 0
) -> PoolHead:
    return PoolHead(
        dag=dag,
        run_id="r",
        task=task,
        attempt=1,
        pool_slots=slots,
        priority=priority,
        logical_date=AT,
        enqueued_at=AT,
        max_pool_share=share,
        held_slots=held,
        shard_seq=1,
    )


def place(dag: str = "d", slots: int = 1, before: int = 0, task: str = "a", priority: int = 0) -> PlaceInPool:
    named = {"dag": dag, "run_id": "r", "task": task, "attempt": 1, "enqueued_at": AT}
    return PlaceInPool(**named, pool_slots=slots, priority=priority, before=before)


def test_a_pool_without_workers_says_how_to_start_one() -> None:
    expected = ("no_worker", "no worker serves pool p; start one with `tidewheel worker --pool p=8`")
    assert why_in_pool(PoolFacts(name="p"), None, 1) == expected
    assert why_in_pool(pool(), place(), 1) == expected


def test_a_closed_pool() -> None:
    code, message = why_in_pool(pool(worker("w", 4), slots=0), place(), 1)
    assert (code, message) == (
        "pool_closed",
        "pool p is closed: its limit is 0; `tidewheel pools p --slots N` opens it",
    )


def test_workers_that_are_not_heard() -> None:
    silent = worker("w", 4, state="suspended", reason="a lease expired")
    code, message = why_in_pool(pool(silent), place(), 1)
    assert (code, message) == ("worker_silent", "no worker of pool p is heard (w is suspended: a lease expired)")


def test_a_task_wider_than_every_worker_whether_it_is_heard_or_not() -> None:
    code, message = why_in_pool(pool(worker("w", 2), worker("v", 3, state="suspended")), place(slots=4), 4)
    assert (code, message) == (
        "too_wide",
        "it takes 4 slots of one worker, and the widest worker of pool p has 3 slots",
    )


def test_behind_a_task_of_its_own_dag_that_no_worker_can_take() -> None:
    facts = pool(worker("w", 2), heads=(head("d", slots=4, task="wide"),))
    code, message = why_in_pool(facts, place(task="b", before=1), 1)
    assert code == "too_wide"
    assert message.startswith("wide of run r takes 4 slots, no worker of pool p has so many")


def test_a_dag_at_its_share() -> None:
    facts = pool(worker("w", 10, used=4), heads=(head("d", held=3, share=30),))
    code, message = why_in_pool(facts, place(), 1)
    assert (code, message) == ("max_pool_share", "of pool p DAG d holds 3 slots and may hold 3 (30%, max_pool_share)")
    below = pool(worker("w", 10, used=4), heads=(head("d", held=2, share=30),))
    assert why_in_pool(below, place(), 1)[0] == "starting"


def test_a_full_pool_says_who_holds_most_and_who_goes_before() -> None:
    facts = pool(worker("w", 4, used=4), waiting=9, heads=(head("d"),), holders=(PoolHolder(dag="big", slots=3),))
    code, message = why_in_pool(facts, place(before=2), 1)
    assert code == "pool_full"
    assert message == "4 of 4 slots of pool p are in use (DAG big has 3), 9 wait, 2 of its DAG before it"


def test_a_full_pool_by_its_own_limit() -> None:
    code, message = why_in_pool(pool(worker("w", 8, used=2), slots=2, heads=(head("d"),)), place(), 1)
    assert (code, message) == ("pool_full", "2 of 2 slots of pool p are in use, 3 wait")


def test_free_slots_that_lie_on_several_workers() -> None:
    facts = pool(worker("w", 4, used=3), worker("v", 4, used=3), heads=(head("d", slots=2),))
    code, message = why_in_pool(facts, place(slots=2), 2)
    assert code == "pool_full"
    assert message == "it takes 2 slots of one worker of pool p, and at most 1 are free on one, 3 wait"


def test_tasks_of_a_backfill_go_after_all_others() -> None:
    facts = pool(worker("w", 1, used=1), heads=(head("d", priority=-PRIORITY_DROP), head("e")))
    code, message = why_in_pool(facts, place(priority=-PRIORITY_DROP), 1)
    assert code == "pool_full" and message.endswith("; tasks of a backfill go after all others")


def test_room_that_is_kept_for_a_wider_task_in_front() -> None:
    facts = pool(worker("w", 4, used=2), heads=(head("other", slots=3, task="wide"), head("d")))
    code, message = why_in_pool(facts, place(), 1)
    assert code == "wider_task"
    assert message == "2 slots of pool p are kept for wide of other r, which takes 3 of one worker and goes first"


def test_who_is_at_its_share_or_too_wide_for_everybody_is_in_nobodys_way() -> None:
    at_share = head("shared", slots=3, held=2, share=50)
    facts = pool(worker("w", 4, used=2), heads=(at_share, head("huge", slots=9), head("d")))
    assert why_in_pool(facts, place(), 1) == ("starting", "it is about to be given a slot of pool p")


def test_an_attempt_that_the_pool_has_not_seen_yet() -> None:
    assert why_in_pool(pool(worker("w", 4)), None, 1) == ("starting", "pool p is about to take it in")
