"""Durations and plain scalars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.definition.scalars import DURATION_MAX_MS, ScalarMistake, duration_ms, resolve


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999))
def test_durations_add_up(days: int, hours: int, minutes: int, seconds: int, ms: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s{ms}ms"
    assert duration_ms(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + ms


@given(st.text(max_size=20))
def test_any_text_is_a_bounded_duration_or_a_mistake(text: str) -> None:
    try:
        assert 0 <= duration_ms(text) <= DURATION_MAX_MS
    except ScalarMistake as mistake:
        assert str(mistake)


@given(st.text(max_size=20) | st.from_regex(r"[-+0-9._exo:]{1,30}", fullmatch=True))
def test_any_text_is_a_json_value_or_a_mistake(text: str) -> None:
    try:
        value = resolve(text)
    except ScalarMistake as mistake:
        assert str(mistake)
    else:
        assert value is None or isinstance(value, str | bool | int | float)


@pytest.mark.parametrize("text", ["9223372036854775807", "-9223372036854775808"])
def test_whole_numbers_have_64_bits(text: str) -> None:
    assert resolve(text) == int(text)


@pytest.mark.parametrize("text", ["9" * 5_000, "0x" + "f" * 5_000, "9223372036854775808", "-9223372036854775809"])
def test_larger_ones_are_refused(text: str) -> None:
    with pytest.raises(ScalarMistake, match="64 bits"):
        resolve(text)
