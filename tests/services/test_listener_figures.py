"""What a listener's port says of it."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.test_listener import EACH, Site, workflow
from tidewheel.runtime.scheduler import wall_clock_ms
from tidewheel_services.listener.figures import ListenerFigures


def test_it_counts_what_it_has_and_says_when_it_does_not_turn(tmp_path: Path) -> None:
    site = Site(tmp_path)
    figures = ListenerFigures(site.listener)
    assert figures.fault() == "nothing has been reached yet"
    site.deploy(workflow("one", EACH), workflow("two", EACH))
    site.publish("a")
    site.listen()
    shown = {figure.name: figure.values for figure in figures.figures()}
    assert shown["listener_info"] == [({"instance": "l1"}, 1)]
    for name, value in (
        ("triggers", 2),
        ("topics", 1),
        ("partitions", 1),
        ("records", 1),
        ("runs", 2),
        ("lag_records", 0),
    ):
        assert shown[f"listener_{name}"] == [({}, value)], name
    assert shown["listener_missing_topics"] == []
    # The engine's clock here is another year's.
    assert "no turn for" in figures.fault()
    site.listener.status.turned_at = wall_clock_ms()
    assert figures.fault() == ""
    site.listener.close()
    site.feed.close()
