"""What a workflow says of deadlines must make sense."""

from __future__ import annotations

from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import descend
from tidewheel.definition.shapes import Draft


def lint_deadlines(draft: Draft, findings: Findings) -> None:
    """Note every mistake."""
    written = draft.get("deadlines") or ()
    deadlines = [deadline for deadline in written if deadline is not None and "within" in deadline]
    for deadline in deadlines:
        if deadline["within"] < 0:
            _lint_warning(deadline, deadlines, findings)
    schedule = draft.get("schedule")
    if not isinstance(schedule, Draft) or schedule.get("catchup") != "all":
        return
    for deadline in deadlines:
        if deadline.get("action") == "fail" and deadline.get("from", "scheduled") == "scheduled":
            meaning = (
                "'catchup: all' makes runs of old slots, and this would fail each of them at once: count 'from: queued'"
            )
            findings.add(descend(deadline.node, "action"), "conflict", meaning)


def _lint_warning(warning: Draft, deadlines: list[Draft], findings: Findings) -> None:
    """A negative ``within``: it needs one deadline that it comes before, and somebody who is told."""
    place = warning.node.entries["within"]
    begins = warning.get("from", "scheduled")
    meant = [one["within"] for one in deadlines if one["within"] > 0 and one.get("from", "scheduled") == begins]
    if len(meant) != 1:
        found = "there is none" if not meant else f"there are {len(meant)}: write the time from the beginning instead"
        message = f"a negative 'within' warns before the one deadline of the same 'from' ({begins}), and {found}"
        findings.add(place, "conflict", message)
    elif -warning["within"] >= meant[0]:
        findings.add(place, "bad_duration", "the warning would come before the time begins to count")
    if warning.get("action") == "fail":
        findings.add(warning.node.entries["action"], "conflict", "a negative 'within' only warns: it cannot fail a run")
    if "notify" not in warning.node.entries:
        findings.add(warning.node, "missing_key", "a negative 'within' warns its own target: add 'notify'")
