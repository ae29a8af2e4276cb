"""Fenced records under every interleaving of attempts: no older write after a newer claim, none lost in silence."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effects.actors import Turnstile
from tidewheel.effects import CannotFence, FencedRecord, FsspecStore, StaleAttempt, Stored, Token

#: What an attempt does to the record, in order; a text is put.
Program = list[str]
PROGRAMS = st.lists(st.lists(st.sampled_from(["claim", "put", "once"]), min_size=1, max_size=3), min_size=2, max_size=4)


def token(attempt: int) -> Token:
    return Token("shop", "r1", "load", attempt)


class Kept:
    """A store in memory that keeps every value it ever accepted."""

    def __init__(self) -> None:
        self.accepted: list[bytes] = []

    def get(self, key: str) -> Stored | None:
        return Stored(self.accepted[-1], str(len(self.accepted))) if self.accepted else None

    def put_if(self, key: str, data: bytes, version: str | None) -> bool:
        if int(version or 0) != len(self.accepted):
            return False
        self.accepted.append(data)
        return True


class Stepped:
    """A store whose every call waits for its turn; at some calls the answer to an accepted put is lost."""

    def __init__(self, store: Kept, turnstile: Turnstile, who: int, lossy: bool) -> None:
        self._store, self._turnstile, self._who, self._lossy = store, turnstile, who, lossy

    def get(self, key: str) -> Stored | None:
        self._turnstile.wait(self._who)
        return self._store.get(key)

    def put_if(self, key: str, data: bytes, version: str | None) -> bool:
        self._turnstile.wait(self._who)
        return self._store.put_if(key, data, version) and not self._lossy


class Run:
    """What one attempt was told: per step of its program the value that it put, or that it is stale."""

    def __init__(self, store: Stepped, turnstile: Turnstile, attempt: int, program: Program) -> None:
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.given: list[object] = []
        self._record = FencedRecord(store, "report", token(attempt))
        self._turnstile, self._attempt, self._program = turnstile, attempt, program
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for number, step in enumerate(self._program):
            value = f"{self._attempt}.{number}"
            try:
                match step:
                    case "claim":
                        self._record.claim()
                    case "put":
                        self._record.put(value)
                        self.accepted.append(value)
                    case _:
                        self.given.append(self._record.once(lambda value=value: value))  # type: ignore[misc]
            except StaleAttempt as stale:
                assert stale.newest > self._attempt
                self.refused.append(value)
        self._turnstile.end(self._attempt)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS, st.lists(st.integers(0, 3), max_size=60), st.booleans())
def test_whatever_the_interleaving_no_older_write_follows_a_newer_claim(
    programs: list[Program], schedule: list[int], lossy: bool
) -> None:
    store, turnstile = Kept(), Turnstile()
    runs = {
        attempt: Run(Stepped(store, turnstile, attempt, lossy), turnstile, attempt, program)
        for attempt, program in enumerate(programs, start=1)
    }
    for choice in schedule:
        turnstile.step(choice % len(runs) + 1)
    for attempt, run in runs.items():
        while turnstile.step(attempt):
            pass
        run.thread.join(10)
    written = [msgspec.json.decode(data) for data in store.accepted]
    attempts = [content["attempt"] for content in written]
    assert attempts == sorted(attempts), "an older attempt wrote after a newer one"
    newest = max(runs)
    assert attempts[-1] == newest
    assert not runs[newest].refused, "nobody is newer than the newest"
    values = [content["value"] for content in written]
    for run in runs.values():
        for value in run.accepted:
            assert value in values, "accepted, but never written"
        if not lossy:
            assert not set(run.refused) & set(values), "refused, but written"
    last = runs[newest]
    if last.accepted and programs[-1][-1] == "put":
        assert values[-1] == last.accepted[-1]


def test_once_is_one_value_for_all_attempts(tmp_path: Path) -> None:
    store = FsspecStore(str(tmp_path))
    calls: list[int] = []

    def make() -> dict[str, int]:
        calls.append(1)
        return {"rows": 3}

    assert [FencedRecord(store, "x", token(n)).once(make) for n in (1, 2, 5)] == [{"rows": 3}] * 3
    assert calls == [1]
    with pytest.raises(StaleAttempt, match=r"attempt 4 .* replaced by attempt 5"):
        FencedRecord(store, "x", token(4)).once(make)


def test_once_that_failed_is_tried_again_by_the_next_attempt(tmp_path: Path) -> None:
    store = FsspecStore(str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        FencedRecord(store, "x", token(1)).once(lambda: 1 / 0)
    assert FencedRecord(store, "x", token(2)).once(lambda: None) is None
    assert FencedRecord(store, "x", token(3)).once(lambda: "again") is None


def test_a_claim_keeps_the_value_and_refuses_the_older(tmp_path: Path) -> None:
    store = FsspecStore(str(tmp_path))
    first, second = (FencedRecord(store, "x", token(n)) for n in (1, 2))
    assert first.get() is None
    first.put([1])
    second.claim()
    assert second.get() == [1]
    with pytest.raises(StaleAttempt):
        first.put([2])
    assert second.get() == [1]


def test_whatever_is_in_a_name_each_record_has_its_own_place_below_the_root(tmp_path: Path) -> None:
    parts = ["a/b", "a", "..", ".", "%2E%2E", "ü {}", "x.json", ""]
    root = tmp_path / "root"
    store = FsspecStore(str(root))
    for run_id in parts:
        for name in parts:
            FencedRecord(store, name, Token("shop", run_id, "load[0]", 1)).put([run_id, name])
    for run_id in parts:
        for name in parts:
            assert FencedRecord(store, name, Token("shop", run_id, "load[0]", 1)).get() == [run_id, name]
    assert list(tmp_path.iterdir()) == [root]


def test_a_store_that_is_no_store_is_found_out() -> None:
    class Deaf(Kept):
        def put_if(self, key: str, data: bytes, version: str | None) -> bool:
            return False

    class Odd(Kept):
        def get(self, key: str) -> Stored | None:
            return Stored(b"<html>", "1")

    with pytest.raises(CannotFence, match="nobody newer has claimed"):
        FencedRecord(Deaf(), "x", token(1)).put(1)
    with pytest.raises(CannotFence, match="no fenced record"):
        FencedRecord(Odd(), "x", token(1)).put(1)
