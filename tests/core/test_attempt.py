"""One attempt has one name, whoever speaks of it."""

from __future__ import annotations

import pytest

from tests.core.scenes import enqueued, leased
from tidewheel.core import events as e
from tidewheel.core.attempt import OfAttempt, attempt_fields, attempt_key
from tidewheel.core.commands import ExpireLease
from tidewheel.core.mail import StopAttempt


@pytest.mark.parametrize(
    "said",
    [
        ExpireLease(dag="d", run_id="r", task="t", attempt=1),
        StopAttempt(receiver="w1", partition=0, dag="d", run_id="r", task="t", attempt=1, cancel=False),
        leased("t"),
        enqueued("d", "t"),
    ],
)
def test_command_mail_and_events_of_both_journals_name_it_alike(said: OfAttempt) -> None:
    assert attempt_key(said) == ("d", "r", "t", 1)
    skipped = e.TaskSkipped(**attempt_fields(said), at=5, reason="for the test")
    assert attempt_key(skipped) == attempt_key(said)
