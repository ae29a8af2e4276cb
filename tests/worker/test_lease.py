"""The lease as the worker counts it: always on the safe side."""

from __future__ import annotations

import pytest

from tidewheel.worker.lease import Lease


def test_before_any_answer_it_runs_from_the_mail() -> None:
    lease = Lease(30_000, received=100.0)
    assert lease.deadline == 130.0
    assert lease.fence_at == 124.0
    assert lease.beat_due == 110.0


def test_an_answer_counts_from_when_its_beat_was_made() -> None:
    lease = Lease(30_000, received=100.0)
    assert lease.make_beat(101.0) == 0
    assert lease.make_beat(111.0) == 1
    # The answer to the first comes late, and lets the lease run from the first.
    assert lease.acknowledge(0, 30_000)
    assert lease.deadline == 131.0
    assert lease.acknowledge(1, 30_000)
    assert lease.deadline == 141.0


def test_old_repeated_and_invented_answers_change_nothing() -> None:
    lease = Lease(30_000, received=100.0)
    lease.make_beat(101.0)
    lease.make_beat(111.0)
    assert lease.acknowledge(1, 30_000)
    assert not lease.acknowledge(0, 30_000)
    assert not lease.acknowledge(1, 30_000)
    assert not lease.acknowledge(7, 30_000)
    assert lease.deadline == 141.0


def test_an_answer_may_change_the_term() -> None:
    lease = Lease(30_000, received=100.0)
    lease.make_beat(101.0)
    assert lease.acknowledge(0, 6_000)
    assert (lease.deadline, lease.beat_due) == (107.0, 103.0)


@pytest.mark.parametrize("lease_ms", [100, 1_000, 3_000, 6_000, 15_000, 30_000, 600_000])
def test_there_is_time_for_a_beat_before_the_fence_and_for_a_kill_after_it(lease_ms: int) -> None:
    lease = Lease(lease_ms, received=0.0)
    assert 0 < lease.beat_due < lease.fence_at < lease.deadline
    assert lease.deadline - lease.fence_at >= min(2.0, lease.lease_s / 2)
