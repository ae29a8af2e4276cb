"""Deliveries to a real server that takes them, refuses them, hangs, is gone, and comes back."""

from __future__ import annotations

import logging

import apprise
import pytest

from tests.notifier.receiver import Receiver
from tidewheel_services.notifier.delivery import Delivery, Unusable
from tidewheel_services.notifier.targets import Target


def test_it_arrives_with_title_body_and_kind(receiver: Receiver) -> None:
    assert Delivery(receiver.target("ops")).send("d failed", "a, attempt 1\n    boom", "failure") == ""
    (taken,) = receiver.taken
    assert (taken["title"], taken["message"], taken["type"]) == ("d failed", "a, attempt 1\n    boom", "failure")


def test_a_refusal_is_told_without_the_urls_secrets(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    delivery = Delivery(receiver.target("ops"))
    receiver.status = 500
    with caplog.at_level(logging.DEBUG):
        why = delivery.send("t", "b", "info")
    assert "500" in why
    assert "s3cr3t-token" not in why + caplog.text + "".join(capfd.readouterr())
    receiver.status = 200
    assert delivery.send("t", "b", "info") == ""


def loggers() -> dict[str, tuple[object, ...]]:
    """Everything that is set about each logger of this process."""
    known = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    return {
        name: (one.level, one.propagate, one.disabled, [*one.handlers], [*one.filters]) for name, one in known.items()
    }


def test_no_logger_of_the_process_is_changed_by_it(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    before = loggers()
    with caplog.at_level(logging.DEBUG):
        assert Delivery(receiver.target("ops")).send("t", "b", "info") == ""
        with pytest.raises(Unusable):
            Delivery(Target("ops", "nosuchservice://hunter2"))
        assert caplog.text == ""
        logging.getLogger("apprise").warning("said by another user of the library")
    assert "said by another" in caplog.text
    assert loggers() == before


def test_who_does_not_answer_is_left_alone_until_the_try_has_ended(receiver: Receiver) -> None:
    delivery = Delivery(receiver.target("ops", "?rto=60"), try_s=0.2)
    receiver.hanging.set()
    assert delivery.send("t", "b", "info") == "no answer within 0.2 s"
    assert delivery.send("t", "b", "info") == "an earlier try has not come back yet"
    assert receiver.tries <= 1


def test_nobody_there_is_a_reason() -> None:
    assert "onnection" in Delivery(Target("ops", "json://127.0.0.1:1/x?cto=2")).send("t", "b", "info")


@pytest.mark.parametrize("url", ["nosuchservice://x", "slack://"])
def test_a_url_that_is_not_understood_is_told_at_once(url: str) -> None:
    with pytest.raises(Unusable, match="target 'ops' is not understood"):
        Delivery(Target("ops", url))


def test_a_try_that_cannot_even_begin_has_not_delivered(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ended before anything was said, and to say nothing means that it was delivered."""
    delivery = Delivery(receiver.target("ops"))
    monkeypatch.delattr(apprise, "NotifyType")
    assert "NotifyType" in delivery.send("t", "b", "info")
    assert receiver.taken == []
