"""Targets come from the environment or a file, and their URLs stay where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel_services.notifier.targets import BadTargets, Target, configured


def test_targets_by_variable_and_by_file(tmp_path: Path) -> None:
    file = tmp_path / "targets"
    file.write_text("# ours\nchat = slack://a/b/c\n\ndata_oncall = json://file.example/x?a=b\n")
    found = configured({"TIDEWHEEL_NOTIFIER_TARGETS": str(file), "TIDEWHEEL_NOTIFY_DATA_ONCALL": " json://h/y "})
    assert found == {"chat": Target("chat", "slack://a/b/c"), "data_oncall": Target("data_oncall", "json://h/y")}
    assert configured({"TIDEWHEEL_NOTIFY_EMPTY": ""}) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chat", "targets:1: write name = URL"),
        ("Chat = json://h", "no name"),
        ("a=json://h\na=json://h", ":2: .*already"),
    ],
)
def test_a_bad_file_is_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "targets"
    file.write_text(text)
    with pytest.raises(BadTargets, match=words):
        configured({"TIDEWHEEL_NOTIFIER_TARGETS": str(file)})


def test_a_bad_value_is_refused_without_being_shown() -> None:
    with pytest.raises(BadTargets, match="TIDEWHEEL_NOTIFY_CHAT: the value is no URL") as caught:
        configured({"TIDEWHEEL_NOTIFY_CHAT": "hunter2hunter2"})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(BadTargets, match="cannot be read: FileNotFoundError"):
        configured({"TIDEWHEEL_NOTIFIER_TARGETS": "/nowhere/targets"})


@pytest.mark.parametrize(
    ("url", "said", "shown"),
    [
        ("json://ann:pa%20ss@h.example:80/k/tok3n?x=y1y1", "h.example: pa ss, tok3n, y1y1", "h.example: ***, ***, ***"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnl", "T1JJ3T3L2: invalid TIiajkdnl", "***: invalid ***"),
        ("json://127.0.0.1:9000/hook/s3cr3t-token", "127.0.0.1 said no to s3cr3t-token", "127.0.0.1 said no to ***"),
    ],
)
def test_what_is_said_of_a_delivery_is_masked(url: str, said: str, shown: str) -> None:
    target = Target("t", url)
    assert target.masked(said) == shown
    assert url not in repr(target)
