"""Folding what concerns the journal itself."""

from __future__ import annotations

from tidewheel.core import events as e
from tidewheel.core.fold import fold
from tidewheel.core.snapshot import empty


def test_a_repair_changes_no_aggregate() -> None:
    repaired = e.JournalRepaired(at=1, void_from=3, void_to=5, records=2)
    for state in (empty("dag", "etl"), empty("pool", "default")):
        assert fold(state, repaired) is state
