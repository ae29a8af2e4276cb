"""Bugs to plant into the listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec.structs import replace

from tidewheel.runtime.listener import judging, listener
from tidewheel.runtime.listener.floors import Floors
from tidewheel.runtime.listener.judging import run_for
from tidewheel.runtime.listener.listener import Listener
from tidewheel.testing.simulation.campaign import Plant


def stands_before_asking() -> Any:
    """A listener says that a record is dealt with before its runs are asked for."""
    judge = Listener._judge

    def eager(self: Listener, record: Any, follower: Any) -> Iterator[Any]:
        asked = list(judge(self, record, follower))
        self._commit(follower)
        yield from asked

    return mock.patch.object(Listener, "_judge", eager)


def floor_forgotten() -> Any:
    """A trigger that is new takes what was published before it came."""
    return mock.patch.object(Floors, "has_begun", lambda *_: True)


def dedupe_key_forgotten() -> Any:
    """Two records with one key are two runs."""

    def each(dag: str, trigger: Any, *more: Any) -> Any:
        return run_for(dag, replace(trigger, kafka=replace(trigger.kafka, dedupe_key=None)), *more)

    return mock.patch.object(listener, "run_for", each)


def records_of_an_instant_are_one() -> Any:
    """Records of a topic that were written at the same instant are one run."""
    return mock.patch.object(judging, "_place", lambda record: f"{record.topic}.{record.timestamp}")


def filter_fails_open() -> Any:
    """A record that a filter cannot judge is taken."""

    def open_to_all(dag: str, trigger: Any, record: Any, *more: Any) -> Any:
        try:
            return run_for(dag, trigger, record, *more)
        except judging.CannotJudge:
            return run_for(dag, replace(trigger, kafka=replace(trigger.kafka, filter=None)), record, *more)

    return mock.patch.object(listener, "run_for", open_to_all)


PLANTS: tuple[Plant, ...] = (
    stands_before_asking,
    floor_forgotten,
    dedupe_key_forgotten,
    records_of_an_instant_are_one,
    filter_fails_open,
)
