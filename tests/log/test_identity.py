"""Whether the group's member of a scheduler's name is that scheduler, its life before, or another process."""

from __future__ import annotations

from tidewheel.log.kafka.identity import DOUBTS_MAX, Holder, Identity

BEFORE, OURS, OTHER = "the life before", "this life", "another's life"


class Group:
    """Shows what a test says."""

    shown: Holder | None = None

    def holder(self, instance: str) -> Holder | None:
        assert instance == "a"
        return self.shown


def _restarted(shown_at_start: Holder | None) -> tuple[Group, Identity]:
    group = Group()
    group.shown = shown_at_start
    return group, Identity(group, "a", OURS)


def test_nobody_has_the_name() -> None:
    _, identity = _restarted(None)
    assert not identity.is_taken("")


def test_its_own_member_is_known_by_either_id() -> None:
    group, identity = _restarted(Holder("a-0", BEFORE))
    group.shown = Holder("a-1", BEFORE)
    assert not identity.is_taken("a-1")
    group.shown = Holder("a-2", OURS)
    assert not identity.is_taken("")


def test_while_its_joining_is_not_answered_the_life_before_is_shown_under_an_id_it_has_not_heard_of() -> None:
    group, identity = _restarted(Holder("a-0", BEFORE))
    group.shown = Holder("a-1", BEFORE)
    for _ in range(DOUBTS_MAX * 2):
        assert not identity.is_taken("")


def test_the_life_before_may_show_up_late() -> None:
    """A broker that has just started shows no members until it has read who they are."""
    group, identity = _restarted(None)
    group.shown = Holder("a-0", BEFORE)
    for _ in range(DOUBTS_MAX * 2):
        assert not identity.is_taken("")
    group.shown = Holder("a-1", BEFORE)
    assert not identity.is_taken("a-1")


def test_who_is_neither_this_life_nor_the_one_before_is_another() -> None:
    group, identity = _restarted(Holder("a-0", BEFORE))
    group.shown = Holder("a-1", OTHER)
    assert identity.is_taken("a-0")


def test_who_was_a_member_itself_knows_whose_id_is_shown() -> None:
    group, identity = _restarted(None)
    group.shown = Holder("a-1", BEFORE)
    assert not identity.is_taken("a-1")
    group.shown = Holder("a-2", OTHER)
    assert identity.is_taken("a-1")


def test_two_that_push_each_other_out_find_out() -> None:
    group, identity = _restarted(Holder("a-0", BEFORE))
    rounds = 0
    taken = False
    while not taken and rounds < 100:
        rounds += 1
        group.shown = Holder(f"rival-{rounds}", BEFORE)
        taken = identity.is_taken(f"ours-{rounds}")
    assert rounds == DOUBTS_MAX
