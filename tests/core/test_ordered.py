"""The sorted sequence against a sorted list, and its persistence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core import ordered
from tidewheel.core.ordered import Ordered


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40))), st.integers(2, 6))
@settings(max_examples=200)
def test_it_is_a_sorted_set_that_leaves_its_past_alone(changes: list[tuple[bool, int]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "BLOCK", block)
        found: Ordered[int] = Ordered()
        model: set[int] = set()
        past: list[tuple[Ordered[int], list[int]]] = []
        for add, item in changes:
            past.append((found, sorted(model)))
            if add and item not in model:
                found, model = found.add(item), model | {item}
            elif not add and item in model:
                found, model = found.remove(item), model - {item}
        assert list(found) == sorted(model)
        assert len(found) == len(model)
        assert found == Ordered(model)
        for item in range(-1, 41):
            assert found.after(item) == min((other for other in model if other > item), default=None)
            assert found.at_most(item) == max((other for other in model if other <= item), default=None)
        if model:
            assert found.first() == min(model)
        for before, items in past:
            assert list(before) == items


def test_adding_twice_and_removing_what_is_not_there_are_errors() -> None:
    one = Ordered([1])
    with pytest.raises(KeyError):
        one.add(1)
    for missing in (0, 2):
        with pytest.raises(KeyError):
            one.remove(missing)
    with pytest.raises(KeyError):
        Ordered[int]().remove(1)
    with pytest.raises(IndexError):
        Ordered[int]().first()
