"""Folding what concerns the journal itself."""

from __future__ import annotations

from typing import TypeVar

from tidewheel.core import events as e
from tidewheel.core.state import Aggregate

A = TypeVar("A", bound=Aggregate)


def fold_journal_repaired(state: A, event: e.JournalRepaired) -> A:
    """No aggregate changes: what is void was never folded."""
    return state
