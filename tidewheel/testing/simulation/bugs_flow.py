"""Bugs to plant where runs branch, and where one waits for another."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tidewheel.core.decide import flow, parent
from tidewheel.testing.simulation.campaign import Plant


def switch_ignored() -> Any:
    """Whom a switch leaves out runs all the same."""
    return mock.patch.object(flow, "left_out", lambda *_: "")


def end_not_told() -> Any:
    """A task that waits for a run is not told of its end."""
    return mock.patch.object(flow, "tell_parent", lambda *_: None)


def failure_told_as_success() -> Any:
    """A task that waits for a run is told that it succeeded, whatever it did."""
    tell_parent = parent.tell_parent
    return mock.patch.object(flow, "tell_parent", lambda d, run, end, _: tell_parent(d, run, end, "success"))


PLANTS: tuple[Plant, ...] = (switch_ignored, end_not_told, failure_told_as_success)
