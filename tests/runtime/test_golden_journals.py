"""Journals stored by every release lead to the states they led to then, from their beginning and from snapshots.

``tools/golden_journal.py`` says how they are written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidewheel.core.snapshot import FORMAT, state_hash
from tidewheel.log.interface import JOURNALS
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.reshard import reshard
from tidewheel.wire.catalog import versions
from tools.golden_journal import GOLDEN, UNRELEASED, plain, read, states_of, story

FILES = sorted(GOLDEN.glob("*.jsonl"))
WRITE = "; run tools/golden_journal.py (before a release it may be written anew)"


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def differences(then: Any, now: Any, where: str) -> list[str]:
    """What differs; fields that came since then have no say."""
    if isinstance(then, dict) and isinstance(now, dict):
        gone = [f"{where}: {key} is gone" for key in then.keys() - now.keys()]
        return gone + [
            d for key in then.keys() & now.keys() for d in differences(then[key], now[key], f"{where}.{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = zip(then, now, strict=True)
        return [d for at, pair in enumerate(pairs) for d in differences(*pair, f"{where}[{at}]")]
    return [] if then == now else [f"{where}: was {then!r}, is {now!r}"]


def test_there_are_golden_journals() -> None:
    assert UNRELEASED in FILES or FILES


@pytest.mark.parametrize("snapshots", [False, True], ids=["from the beginning", "from snapshots"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stored_journal_still_leads_to_its_states(path: Path, snapshots: bool) -> None:
    stored, log = read(lines(path))
    states = {"/".join(key): state for key, state in states_of(log, snapshots=snapshots).items()}
    assert differences(stored.states, {name: plain(state) for name, state in states.items()}, "") == [], WRITE
    if stored.format == FORMAT:
        assert {name: state_hash(state) for name, state in states.items()} == stored.hashes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stored_journal_is_still_proved_and_can_be_moved(path: Path) -> None:
    _, log = read(lines(path), topics=JOURNALS)
    assert check_log(log).violations == ()
    new = MemoryLog(3)
    reshard(log, new)
    assert check_log(new).ok


def test_every_version_that_the_story_writes_is_in_a_golden_journal() -> None:
    """So no version that was ever written goes without a journal that holds it to its meaning."""

    def fingerprints(log: MemoryLog) -> set[bytes]:
        places = [(topic, number) for topic in JOURNALS for number in range(log.partitions)]
        return {
            record.value[2:10]
            for place in places
            for record in log.reader({place: 0}).read(1_000_000, 0)
            if record.value
        }

    kept = {found for path in FILES for found in fingerprints(read(lines(path))[1])}
    written = fingerprints(story().log)
    assert len(written) > 20, "the story tells little"
    lost = [versions()[found].name for found in written - kept]
    assert lost == [], f"no golden journal holds these versions{WRITE}"
