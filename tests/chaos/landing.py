"""Records on a topic of the user's own: some start runs by a trigger, some are what a run waits for.

What is compared in the end is what lies on the topic, read around the proxies: the broker may have taken a record whose
acknowledgement was lost, or taken one twice.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tidewheel.log.feeds import open_feed

TOPIC = "chaos.landing"
PARTITIONS = 4
#: How the ids of runs begin that the trigger ``landed`` makes.
TRIGGERED = "trigger__landed:"
RunKey = tuple[str, str]

_CREATE_S = 20
_READ_S = 0.5
_READ_MAX = 5_000
#: A time (ms) that no record has.
_NEVER = 2**53


class Landed(msgspec.Struct, frozen=True):
    """What a record says: of which DAG it is, and by which key its trigger knows it, or which run waits for it."""

    dag: str
    key: str = ""
    run: str = ""


def triggers_of(dag: str) -> list[dict[str, object]]:
    """Those of a DAG that records start: of equal keys one run."""
    match = f'${{{{ event.value.dag == "{dag}" && event.value.key != "" }}}}'
    return [{"id": "landed", "kafka": {"topic": TOPIC, "filter": match, "dedupe_key": "${{ event.value.key }}"}}]


class Landing:
    """Writes ``rate`` records a second for the DAGs ``fed``, each key twice; asks for a run of those that ``wait`` and
    writes what it waits for, in either order, half as often."""

    def __init__(
        self, kafka: str, triggers: str, fed: Sequence[str], wait: Sequence[str], *, rate: float, replicas: int
    ) -> None:
        self._kafka = kafka
        self._replicas = replicas
        self._triggers = triggers
        self._fed = fed
        self._wait = wait
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="landing", daemon=True)
        #: Runs that wait and whose request was acknowledged.
        self.asked: set[RunKey] = set()

    def start(self) -> None:
        """Make the topic, and begin."""
        admin = AdminClient({"bootstrap.servers": self._kafka, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, self._replicas)])[TOPIC].result(_CREATE_S)
        self._thread.start()

    def stop(self) -> None:
        """Write nothing new."""
        self._stop.set()
        self._thread.join(120)

    def _write(self) -> None:
        settings = {"partitioner": "murmur2_random", "message.timeout.ms": 120_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": self._kafka, **settings})
        for number in itertools.count():
            if self._stop.wait(1 / self._rate):
                break
            pair, again = divmod(number, 2)
            # Under another key of Kafka's, so that two listeners may have the two.
            self._land(producer, number, Landed(self._fed[pair % len(self._fed)], key=f"k{pair}"))
            if again:
                waits = Landed(self._wait[pair % len(self._wait)], run=f"waits-{pair}")
                if pair % 2:
                    self._ask(producer, waits)
                self._land(producer, number, waits)
                if not pair % 2:
                    self._ask(producer, waits)
            producer.poll(0)
        producer.flush(60)

    @staticmethod
    def _land(producer: Producer, number: int, what: Landed) -> None:
        producer.produce(TOPIC, key=f"{number}", value=msgspec.json.encode(what))

    def _ask(self, producer: Producer, waits: Landed) -> None:
        def delivered(error: KafkaError | None, _: Message[bytes, bytes]) -> None:
            if error is None:
                self.asked.add((waits.dag, waits.run))

        request = json.dumps({"dag": waits.dag, "run_id": waits.run})
        producer.produce(self._triggers, key=waits.dag, value=request, on_delivery=delivered)

    def wanted(self) -> dict[RunKey, set[str]]:
        """The runs that the records on the topic are to start, with the places of those that ask for each."""
        found: dict[RunKey, set[str]] = defaultdict(set)
        for place, record in self._read_back().items():
            if record.key:
                found[record.dag, TRIGGERED + record.key].add(place)
        return dict(found)

    def _read_back(self) -> Mapping[str, Landed]:
        feed = open_feed(f"kafka://{self._kafka}")
        try:
            scanner = feed.scanner("campaign")
            at = {(TOPIC, number): offset for number, offset in scanner.offsets_at(TOPIC, 0).items()}
            ends = {(TOPIC, number): offset for number, offset in scanner.offsets_at(TOPIC, _NEVER).items()}
            scanner.scan(at)
            found = {}
            while any(at[place] < end for place, end in ends.items()):
                for record in scanner.read(_READ_MAX, _READ_S):
                    at[record.topic, record.partition] = record.offset + 1
                    place = f"{record.topic}/{record.partition}/{record.offset}"
                    found[place] = msgspec.json.decode(record.value or b"", type=Landed)
            return found
        finally:
            feed.close()
