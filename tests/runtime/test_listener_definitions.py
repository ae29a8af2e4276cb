"""What a listener knows of DAGs: from the journal, from snapshots, and past what a repair declared void."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from tidewheel.core import events as e
from tidewheel.core.workflow import Records, Run, Task, Trigger, Workflow
from tidewheel.log.interface import EVENTS, Append, LogError
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime.listener.definitions import Definitions
from tidewheel.wire.codec import GENESIS, encode_event


def deployed(dag: str, *topics: str, at: int = 100) -> e.DagDeployed:
    workflow = Workflow(
        id=dag,
        tasks=(Task(id="a", action=Run(command="true")),),
        triggers=tuple(Trigger(id=f"on_{topic}", kafka=Records(topic=topic)) for topic in topics),
    )
    return e.DagDeployed(dag=dag, at=at, version=f"v{at}", definition=msgspec.json.encode(workflow).decode())


class Journal:
    """One partition of events, numbered per DAG."""

    def __init__(self) -> None:
        self.log = MemoryLog(1)
        self.log.create_topics()
        self._producer = self.log.producer()
        self._written: list[str] = []

    def write(self, *events: e.AnyEvent, again: bool = False) -> None:
        """``again`` numbers them as if the last event of the DAG had never been."""
        for event in events:
            name = getattr(event, "dag", "")
            seq = self._written.count(name) + (0 if again else 1)
            self._written.append(name)
            data, _ = encode_event(event, seq=seq, shard_seq=1, writer=1, cause="t", previous=GENESIS)
            self._producer.send(Append(EVENTS, name.encode(), data, partition=0))
        self._producer.flush(5)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def topics(definitions: Definitions) -> Mapping[str, int]:
    definitions.read_on()
    return definitions.topics()


def test_a_topic_begins_with_the_first_of_its_triggers(journal: Journal) -> None:
    definitions = Definitions(journal.log)
    assert topics(definitions) == {}
    journal.write(deployed("one", "t", at=200), deployed("two", "t", "u", at=300), deployed("none", at=50))
    assert topics(definitions) == {"t": 200, "u": 300}
    assert [(one.dag, one.trigger.id, one.since) for one in definitions.of_topic("t")] == [
        ("one", "on_t", 200),
        ("two", "on_t", 300),
    ]
    assert (definitions.triggers, definitions.most_on_a_topic) == (3, 2)
    journal.write(e.DagRemoved(dag="two", at=400), deployed("one", "u", at=500))
    assert topics(definitions) == {"u": 500}
    definitions.close()


def test_what_a_repair_declared_void_was_never_deployed(journal: Journal) -> None:
    following = Definitions(journal.log)
    journal.write(deployed("one", "t", at=100))
    journal.write(deployed("one", "void", at=200))
    assert topics(following) == {"void": 200}
    journal.write(e.JournalRepaired(at=300, void_from=1, void_to=2, records=1, lost=1, known_shard_seq=2))
    journal.write(deployed("one", "t", "u", at=400), again=True)
    starting = Definitions(journal.log)
    for definitions in (following, starting):
        assert topics(definitions) == {"t": 100, "u": 400}
        definitions.close()


def test_a_trimmed_journal_without_snapshots_is_told_and_not_taken_for_the_whole(journal: Journal) -> None:
    journal.write(deployed("one", "t"), deployed("two", "t"))
    journal.log.trim(EVENTS, 0, 1)
    with pytest.raises(LogError, match="events/0 begins at offset 1, and no snapshot"):
        Definitions(journal.log).read_on()


def test_a_definition_that_a_newer_release_wrote_is_left_out_and_the_others_count(journal: Journal) -> None:
    strange = e.DagDeployed(dag="new", at=1, version="v", definition='{"id": "new", "triggers": [{"pulsar": 1}]}')
    journal.write(strange, deployed("one", "t"))
    definitions = Definitions(journal.log)
    assert topics(definitions) == {"t": 100}
    definitions.close()
