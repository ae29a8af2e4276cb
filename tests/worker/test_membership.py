"""Joining pools: until welcome, again when forgotten."""

from __future__ import annotations

import math

from tidewheel.core.commands import JoinPool, LeavePool, RenewWorker
from tidewheel.worker.membership import Membership


def membership(now: float = 0.0) -> Membership:
    return Membership("default", 4, "w1", 3, "host", now)


def test_it_joins_at_once_and_again_with_patience_until_welcome() -> None:
    member = membership()
    instants = []
    for _ in range(5):
        instants.append(member.due)
        command = member.command(member.due)
        assert isinstance(command, JoinPool)
        assert (command.pool, command.worker, command.slots, command.mail_partition) == ("default", "w1", 4, 3)
    assert instants == [0, 5, 15, 35, 65]


def test_a_welcome_is_renewed_each_third_of_the_term() -> None:
    member = membership()
    member.command(0.0)
    member.welcomed(60_000, 1.0)
    assert member.due == 21.0
    assert isinstance(member.command(21.0), RenewWorker)
    assert member.due == 41.0


def test_the_unknown_joins_at_once() -> None:
    member = membership()
    member.command(0.0)
    member.welcomed(60_000, 1.0)
    member.forgotten(30.0)
    assert member.due == 30.0
    assert isinstance(member.command(30.0), JoinPool)
    assert member.due == 35.0


def test_without_slots_it_leaves_and_waits() -> None:
    member = membership()
    member.command(0.0)
    member.welcomed(60_000, 1.0)
    member.resize(0, 2.0)
    assert isinstance(member.command(2.0), LeavePool)
    assert member.due == math.inf
    member.resize(1, 9.0)
    command = member.command(9.0)
    assert isinstance(command, JoinPool) and command.slots == 1


def test_a_welcome_that_was_under_way_does_not_hide_a_new_offer() -> None:
    member = membership()
    member.command(0.0)
    member.resize(3, 1.0)
    member.welcomed(60_000, 1.1)
    assert member.due == 1.0
    command = member.command(1.2)
    assert isinstance(command, JoinPool) and command.slots == 3


def test_a_welcome_after_it_left_changes_nothing() -> None:
    member = membership()
    member.command(0.0)
    member.resize(0, 1.0)
    member.command(1.0)
    member.welcomed(60_000, 1.1)
    assert member.due == math.inf


def test_a_welcome_from_before_it_was_forgotten_is_none() -> None:
    member = membership()
    member.command(0.0)
    member.forgotten(1.0)
    member.welcomed(60_000, 1.1)
    assert member.due == 1.0
    assert isinstance(member.command(1.2), JoinPool)
