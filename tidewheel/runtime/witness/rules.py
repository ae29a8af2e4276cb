"""Trigger rules as the witness reads them: whether one holds now, and whether it still could."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidewheel.core.workflow import TriggerRule

ENDS = frozenset({"success", "failed", "skipped", "upstream_failed", "cancelled"})
_BAD = frozenset({"failed", "upstream_failed", "cancelled"})


class Ends(NamedTuple):
    """How the upstreams of a task stand."""

    needs: int
    success: int
    skipped: int
    bad: int

    @property
    def open(self) -> int:
        return self.needs - self.success - self.skipped - self.bad


def ends_of(phases: Iterable[str]) -> Ends:
    """Count the upstreams' phases."""
    needs = success = skipped = bad = 0
    for phase in phases:
        needs += 1
        success += phase == "success"
        skipped += phase == "skipped"
        bad += phase in _BAD
    return Ends(needs, success, skipped, bad)


def holds(rule: TriggerRule, ends: Ends) -> bool:
    """Whether ``rule`` lets the task run now."""
    if ends.needs == 0:
        return True
    match rule:
        case "always":
            return True
        case "all_success":
            return ends.success == ends.needs
        case "all_failed":
            return ends.bad == ends.needs
        case "all_done":
            return ends.open == 0
        case "one_success":
            return ends.success > 0
        case "one_failed":
            return ends.bad > 0
        case "none_failed":
            return ends.open == 0 and ends.bad == 0
        case "none_failed_min_one_success":
            return ends.open == 0 and ends.bad == 0 and ends.success > 0
        case "none_skipped":
            return ends.open == 0 and ends.skipped == 0


def may_hold(rule: TriggerRule, ends: Ends) -> bool:
    """Whether ``rule`` lets the task run now or could once the open upstreams end."""
    best = [
        ends._replace(success=ends.success + ends.open),
        ends._replace(bad=ends.bad + ends.open),
        ends._replace(skipped=ends.skipped + ends.open),
    ]
    return holds(rule, ends) or any(holds(rule, end) for end in best)
