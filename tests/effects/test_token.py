"""Which attempt is writing: from the context, from the environment of a shell task, or a clear refusal."""

from __future__ import annotations

import pytest

from tidewheel.core.mail import AssignTask
from tidewheel.effects import StaleAttempt, Token, current_token
from tidewheel.task.call import call
from tidewheel.task.context import Context
from tidewheel.task.outcome import Succeeded
from tidewheel_services.worker.environment import described

MAIL = AssignTask(
    receiver="w1", partition=0, dag="shop", run_id="r1", task="load[3]", attempt=2, pool="default", action="",
    lease_ms=1, expires_at=0,
)  # fmt: skip
TOKEN = Token("shop", "r1", "load[3]", 2)


def test_a_shell_task_passes_its_attempt_on_by_its_environment() -> None:
    assert current_token(described(MAIL)) == TOKEN


def test_a_function_has_it_from_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setenv("TIDEWHEEL_ATTEMPT", "7")

    def function() -> list[object]:
        token = current_token()
        return [token.dag, token.run_id, token.task, token.attempt]

    context = Context(MAIL, None, threading.Event())  # type: ignore[arg-type]
    assert call(function, {}, context, with_context=False) == Succeeded('["shop","r1","load[3]",2]')


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "TIDEWHEEL_DAG, TIDEWHEEL_RUN_ID, TIDEWHEEL_TASK, TIDEWHEEL_ATTEMPT is not set"),
        ({**described(MAIL), "TIDEWHEEL_RUN_ID": ""}, "TIDEWHEEL_RUN_ID is not set"),
        ({**described(MAIL), "TIDEWHEEL_ATTEMPT": "two"}, "must be a number, it is 'two'"),
    ],
)
def test_without_an_attempt_nothing_is_guessed(environment: dict[str, str], words: str) -> None:
    with pytest.raises(LookupError, match=words):
        current_token(environment)


def test_a_refusal_says_who_was_replaced_by_whom() -> None:
    error = StaleAttempt(TOKEN, 5)
    assert (error.attempt, error.newest) == (2, 5)
    assert str(error).startswith("attempt 2 of task 'load[3]' in run 'r1' of DAG 'shop' was replaced by attempt 5")
