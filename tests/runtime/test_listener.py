"""The listener over the whole engine under virtual time: which records become runs, and that each becomes one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.worlds import a_world, dead_letters
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.workflow import Input, Records, Run, Task, Trigger, Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.feed import Taken
from tidewheel.log.interface import LogUnavailable
from tidewheel.log.sqlite.feed import SqliteFeed, SqliteFollower
from tidewheel.runtime.listener.listener import Listener
from tidewheel.testing.world import World

ORDERS = Records(
    topic="landing.files",
    filter='event.value.kind == "orders"',
    dedupe_key="${{ event.value.file }}",
    inputs={"day": "${{ event.value.day }}"},
)
EACH = Records(topic="landing.files")


def workflow(name: str, *triggers: Records, text: str = "") -> Workflow:
    return Workflow(
        id=name,
        description=text,
        tasks=(Task(id="load", action=Run(command="true")),),
        inputs={"day": Input(type="date", default=None, required=False)},
        triggers=tuple(Trigger(id=f"t{number}", kafka=records) for number, records in enumerate(triggers)),
    )


class Site:
    """An engine, a feed and a listener."""

    def __init__(self, path: Path) -> None:
        self.world: World = a_world(checkpoint_events=10)
        self.world.add_worker()
        self.feed = SqliteFeed(path / "feed.db", clock=lambda: self.world.now)
        self.listener = self.new_listener()

    def new_listener(self) -> Listener:
        return Listener(self.world.log, self.feed, CelEvaluator(), "l1", lambda: self.world.now)

    def publish(self, value: Any, key: bytes | None = None, topic: str = "landing.files", raw: bool = False) -> None:
        self.feed.publish(topic, key, value if raw else json.dumps(value).encode())

    def listen(self, turns: int = 2) -> None:
        for _ in range(turns):
            self.listener.turn(0)
        self.world.settle()

    def deploy(self, *workflows: Workflow) -> None:
        for each in workflows:
            self.world.deploy(each, f"v{len(each.triggers)}{each.description}")

    @property
    def created(self) -> list[e.RunCreated]:
        return [event for event in self.world.events(e.RunCreated) if isinstance(event, e.RunCreated)]

    @property
    def runs(self) -> list[tuple[str, str]]:
        return [(event.dag, event.run_id) for event in self.created]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.listener.close()
    found.feed.close()


def order(file: str, kind: str = "orders", day: str = "2026-01-05") -> dict[str, str]:
    return {"kind": kind, "file": file, "day": day}


def test_a_record_that_the_filter_takes_is_a_run_that_says_where_it_came_from(site: Site) -> None:
    site.deploy(workflow("orders", ORDERS))
    site.publish(order("a"))
    site.publish(order("b", kind="returns"))
    site.listen()
    (run,) = site.created
    assert (run.run_id, run.kind, run.actor) == ("trigger__t0:a", "kafka", "kafka:landing.files")
    assert (run.trigger, run.origin) == ("t0", "landing.files/0/0")
    assert json.loads(run.inputs) == {"day": "2026-01-05"}
    assert not dead_letters(site.world)
    site.world.check()


def test_each_record_is_one_run_of_each_trigger_and_equal_ones_are_not_merged(site: Site) -> None:
    site.deploy(workflow("one", EACH), workflow("two", EACH, EACH))
    for _ in range(3):
        site.publish({"same": 1})
    site.listen()
    assert len(set(site.runs)) == len(site.runs) == 9


def test_c036_records_of_two_topics_at_the_same_offset_are_two_runs(site: Site) -> None:
    """Of one DAG, in the same partition; also when a listener begins anew."""
    site.deploy(workflow("d", EACH, Records(topic="landing.others")))
    site.listen()
    for topic in ("landing.files", "landing.others"):
        site.publish(order("a"), topic=topic)
    site.listen()
    site.listener.close()
    site.listener = site.new_listener()
    site.listen()
    origins = sorted(event.origin.partition("/")[2] for event in site.created)
    assert len(origins) == 2 and len(set(origins)) == 1, "the same partition and offset"
    assert len(set(site.runs)) == 2


def test_a_record_with_a_key_that_ran_is_that_run(site: Site) -> None:
    site.deploy(workflow("orders", ORDERS))
    for file in ("a", "b", "a"):
        site.publish(order(file))
    site.listen()
    site.publish(order("b"))
    site.listen()
    assert site.runs == [("orders", "trigger__t0:a"), ("orders", "trigger__t0:b")]


@pytest.mark.parametrize("crash_before", ["flush", "commit"])
def test_what_was_read_and_not_committed_is_read_again_and_is_the_same_run(
    site: Site, monkeypatch: pytest.MonkeyPatch, crash_before: str
) -> None:
    site.deploy(workflow("one", EACH))
    site.listen()
    for number in range(5):
        site.publish(number)

    def crash(*_: object) -> None:
        raise LogUnavailable("the process died here")

    with monkeypatch.context() as broken:
        if crash_before == "commit":
            broken.setattr(SqliteFollower, "commit", crash)
        else:
            broken.setattr("tidewheel.log.memory.MemoryProducer.flush", crash)
        with pytest.raises(LogUnavailable):
            site.listener.turn(0)
    site.listener = site.new_listener()
    site.listen()
    site.publish(5)
    site.listen()
    assert len(site.runs) == len(set(site.runs)) == 6


def test_records_from_before_the_deployment_are_not_its_own_and_none_after_it_is_lost(site: Site) -> None:
    site.publish("before")
    site.world.advance(1_000)
    site.deploy(workflow("one", EACH))
    site.publish("after")
    site.world.advance(60_000)
    site.publish("later")
    site.listen()
    assert [run.origin for run in site.created] == ["landing.files/0/1", "landing.files/0/2"]


def test_a_trigger_on_a_topic_that_is_followed_begins_with_its_own_deployment(site: Site) -> None:
    site.deploy(workflow("one", EACH))
    site.listen()
    site.publish("a")
    site.world.advance(1_000)
    site.deploy(workflow("two", EACH))
    site.publish("b")
    # The listener was away all the while.
    site.listener = site.new_listener()
    site.listen()
    assert sorted((run.dag, run.origin[-1]) for run in site.created) == [("one", "0"), ("one", "1"), ("two", "1")]


def test_a_trigger_deployed_while_a_listener_polls_is_known_when_the_record_is_judged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.deploy(workflow("one", EACH))
    site.listen()
    poll = SqliteFollower.poll

    def deploy_publish_poll(self: SqliteFollower, most: int, timeout_s: float) -> Taken:
        site.deploy(workflow("two", EACH))
        site.publish("a")
        return poll(self, most, timeout_s)

    with monkeypatch.context() as between:
        between.setattr(SqliteFollower, "poll", deploy_publish_poll)
        site.listener.turn(0)
    site.world.settle()
    assert sorted(run.dag for run in site.created) == ["one", "two"]


def test_records_stamped_with_an_older_time_are_a_triggers_own_once_it_has_begun(site: Site) -> None:
    site.deploy(workflow("one", EACH))
    site.listen()
    site.world.advance(1_000)
    site.deploy(workflow("two", EACH))
    site.listen()
    site.listener.close()
    long_ago = SqliteFeed(site.feed.path, clock=lambda: site.world.now - 86_400_000)
    long_ago.publish("landing.files", None, b"{}")
    long_ago.close()
    site.listener = site.new_listener()
    site.listen()
    assert sorted(run.dag for run in site.created) == ["one", "two"]


def test_deployed_anew_a_trigger_goes_on_with_the_records_that_waited(site: Site) -> None:
    site.deploy(workflow("one", EACH))
    site.listen()
    site.publish("a")
    site.world.advance(1_000)
    site.deploy(workflow("one", EACH, text="the same trigger"))
    site.world.settle()
    site.listener = site.new_listener()
    site.listen()
    assert [run.origin for run in site.created] == ["landing.files/0/0"]


def test_a_dag_that_was_removed_gets_no_runs_and_begins_anew_when_it_comes_back(site: Site) -> None:
    site.deploy(workflow("one", EACH), workflow("other", EACH))
    site.world.ask(c.RemoveDag(dag="one"))
    site.publish("a")
    site.listen()
    site.world.advance(1_000)
    site.deploy(workflow("one", EACH))
    site.publish("b")
    site.listen()
    assert [run.origin for run in site.created if run.dag == "one"] == ["landing.files/0/1"]
    assert [run.origin for run in site.created if run.dag == "other"] == ["landing.files/0/0", "landing.files/0/1"]


def test_a_listener_that_begins_from_snapshots_knows_the_same(site: Site) -> None:
    site.deploy(*(workflow(f"dag_{number}", EACH) for number in range(6)), workflow("plain"))
    for number in range(6):
        for run in range(4):
            site.world.ask(c.StartRun(dag=f"dag_{number}", run_id=f"r{run}"))
    site.world.settle()
    site.world.ask(c.RemoveDag(dag="dag_0"))
    site.publish("a")
    site.listen()
    triggered = [run.dag for run in site.created if run.trigger]
    assert sorted(triggered) == [f"dag_{number}" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"file": "a"}', "kind"),
        (b"no json", "event.value is its text"),
        (b"\xff\xfe", "neither JSON nor text"),
        (b'{"kind": "orders"}', "file"),
        (b'{"kind": "orders", "file": null}', "the dedupe_key is null"),
        (b'{"kind": "orders", "file": "a"}', "day"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'{"kind": "orders", "file": "a", "day": "' + b"x" * 70_000 + b'"}', "the limit is"),
        (b'{"kind": "a\\u0000"}', "U+0000"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_record_that_cannot_be_judged_is_a_dead_letter_and_the_next_one_a_run(
    site: Site, value: bytes, why: str
) -> None:
    site.deploy(workflow("orders", ORDERS))
    site.publish(value, key=b"k", raw=True)
    site.publish(order("good"))
    site.listen()
    assert site.runs == [("orders", "trigger__t0:good")]
    (letter,) = dead_letters(site.world)
    assert (letter.topic, letter.partition, letter.offset, letter.key) == ("landing.files", 0, 0, b"k")
    assert letter.value == value
    assert why in letter.reason and "trigger 't0' of DAG 'orders'" in letter.reason


def test_a_record_of_a_mebibyte_is_a_run(site: Site) -> None:
    site.deploy(workflow("orders", ORDERS))
    site.publish({**order("large"), "padding": "x" * 2**20})
    site.listen()
    assert site.runs == [("orders", "trigger__t0:large")]


def test_inputs_that_the_dag_refuses_are_told_by_the_scheduler(site: Site) -> None:
    site.deploy(workflow("orders", ORDERS))
    site.publish(order("a", day="soon"))
    site.listen()
    assert not site.runs
    (letter,) = dead_letters(site.world)
    assert letter.topic == "triggers" and "a date like" in letter.reason


def test_a_trigger_that_is_dropped_takes_no_more_and_its_topic_is_left(site: Site) -> None:
    site.deploy(workflow("one", EACH))
    site.publish("a")
    site.listen()
    site.deploy(workflow("one"))
    site.publish("b")
    site.listen()
    assert len(site.runs) == 1
    assert site.listener.status.topics == site.listener.status.partitions == 0
