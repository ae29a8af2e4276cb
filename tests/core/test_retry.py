"""Back-off: exact, bounded, and the same on every replay."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.scenes import task
from tidewheel.core.commands import FailureKind
from tidewheel.core.retry import budget_of, delay_ms, is_retried, retry_at
from tidewheel.core.workflow import Retry, RetryKind


@pytest.mark.parametrize(
    ("backoff", "waits"), [("fixed", [10, 10, 10]), ("linear", [10, 20, 30]), ("exponential", [10, 20, 40])]
)
def test_the_wait_grows_as_its_name_says(backoff: str, waits: list[int]) -> None:
    retry = Retry(delay_ms=10, backoff=backoff, jitter=False)  # type: ignore[arg-type]
    assert [delay_ms(retry, failures, "x") for failures in (1, 2, 3)] == waits


@pytest.mark.parametrize("backoff", ["fixed", "linear", "exponential"])
def test_no_delay_is_no_delay(backoff: str) -> None:
    """C051."""
    assert delay_ms(Retry(delay_ms=0, backoff=backoff), 5, "x") == 0  # type: ignore[arg-type]


@given(st.integers(0, 10**12), st.integers(1, 10**9), st.integers(1, 10**10), st.booleans())
def test_no_number_of_failures_overflows_the_cap(delay: int, failures: int, cap: int, jitter: bool) -> None:
    wait = delay_ms(Retry(delay_ms=delay, max_delay_ms=cap, jitter=jitter), failures, "x")
    assert 0 <= wait <= cap * 1.25


@given(st.text(max_size=20))
def test_jitter_is_a_quarter_at_most_and_depends_on_the_attempt_alone(identity: str) -> None:
    retry = Retry(delay_ms=1_000_000, max_delay_ms=2_000_000)
    wait = delay_ms(retry, 1, identity)
    assert 750_000 <= wait <= 1_250_000
    assert wait == delay_ms(retry, 1, identity)


def test_jitter_spreads() -> None:
    waits = {delay_ms(Retry(delay_ms=1_000_000), 1, str(number)) for number in range(100)}
    assert len(waits) > 90


@pytest.mark.parametrize(
    ("kind", "budget"),
    [("exit_code", "retries"), ("timeout", "retries"), ("lease_expired", "infra_retries"), ("expression", "none")],
)
def test_each_kind_of_failure_has_its_budget(kind: str, budget: str) -> None:
    assert budget_of(kind) == budget  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "exit_code", "http_status", "wanted"),
    [
        ("exit_code", 75, None, True),
        ("exit_code", 1, None, False),
        ("signal", 75, None, True),
        ("http_status", None, 503, True),
        ("http_status", None, 404, False),
        ("timeout", None, None, True),
        ("exception", None, None, False),
    ],
)
def test_a_task_is_tried_again_on_any_failure_that_it_names(
    kind: Any, exit_code: int | None, http_status: int | None, wanted: bool
) -> None:
    named = Retry(only_on_exit_codes=(75,), only_on_http_status=(429, 503), only_on_kinds=("timeout",))
    assert is_retried(named, kind, exit_code=exit_code, http_status=http_status) is wanted
    assert is_retried(Retry(), kind, exit_code=exit_code, http_status=http_status)


def test_what_retries_may_name_are_the_failures_that_draw_on_them() -> None:
    assert set(get_args(RetryKind)) == {kind for kind in get_args(FailureKind) if budget_of(kind) == "retries"}


def test_a_lost_worker_is_made_good_whatever_retries_name() -> None:
    picky = task("a", retry=Retry(max=3, only_on_kinds=("timeout",)), infra_retries=1)
    assert retry_at(picky, kind="worker_lost", failures=0, losses=1, identity="x", now=100) == 100


def test_the_first_loss_is_made_good_at_once_and_later_ones_wait() -> None:
    lossy = task("a", retry=Retry(delay_ms=500, jitter=False), infra_retries=2)

    def after(losses: int) -> int | None:
        return retry_at(lossy, kind="lease_expired", exit_code=None, failures=0, losses=losses, identity="x", now=100)

    assert [after(losses) for losses in (1, 2, 3)] == [100, 600, None]
