"""The load: DAGs of every shape on every shard, asked for by API and by raw records as long as the campaign lasts.

What was *accepted* (answered by the API, acknowledged by the broker) is kept: each of them must have become one run.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.landing import TOPIC, triggers_of
from tidewheel.log.partition import partition_of

#: Tasks of each shape, so that the verdict knows what a run must come to.
SHAPES: dict[str, list[dict[str, object]]] = {
    "chain": [
        {"id": "a", "python": "effects:work"},
        {"id": "b", "needs": ["a"], "python": "effects:work", "with": {"seconds": 0.1}},
        {"id": "c", "needs": ["b"], "python": "effects:work", "pool": "other"},
    ],
    "fan": [
        {"id": "first", "python": "effects:work"},
        *({"id": f"m{n}", "needs": ["first"], "python": "effects:work", "pool": "other"} for n in range(3)),
        {"id": "last", "needs": ["m0", "m1", "m2"], "python": "effects:work"},
    ],
    "retry": [
        {"id": "flaky", "python": "effects:flaky", "retry": {"max": 3, "delay": "200ms"}},
        {"id": "after", "needs": ["flaky"], "python": "effects:work"},
    ],
    "slow": [{"id": "slow", "python": "effects:work", "with": {"seconds": 2.0}}],
    "timed": [{"id": "tick", "python": "effects:work"}],
    # Started by records of the user's own (``landing``); the API's address is put in when the files are written.
    "fed": [{"id": "take", "python": "effects:work"}],
    "waits": [
        {"id": "record", "wait_for": {"kafka": {"topic": TOPIC, "match": "${{ event.value.run == run.id }}"}}},
        {"id": "answer", "needs": ["record"], "wait_for": {"http": {"url": "API/healthz", "every": "1s"}}},
    ],
}
#: Shapes of whose runs the notifier tells.
TOLD = ("fed", "waits")
#: Its target.
TARGET = "campaign"
_MIX = ("chain", "fan", "chain", "retry", "chain", "slow")
_ANSWER_S = 10.0


def dags(partitions: int) -> dict[str, dict[int, str]]:
    """A DAG of each shape on each shard: shape, shard, name."""
    found: dict[str, dict[int, str]] = {}
    for shape in SHAPES:
        names: dict[int, str] = {}
        for number in itertools.count():
            name = f"{shape}_{number}"
            names.setdefault(partition_of(name.encode(), partitions), name)
            if len(names) == partitions:
                break
        found[shape] = names
    return found


def write_dags(directory: Path, partitions: int, api: str, *, schedules: bool = True) -> int:
    """Write their files; gives how many. ``api`` is its address."""
    directory.mkdir(parents=True, exist_ok=True)
    written = 0
    for shape, names in dags(partitions).items():
        for name in names.values():
            document: dict[str, object] = {
                "id": name,
                "defaults": {"infra_retries": 1000},
                "concurrency": {"max_runs": 1000},
                "tasks": SHAPES[shape],
            }
            if shape == "timed" and schedules:
                document["schedule"] = {"every": "5s"}
            if shape == "fed":
                document["triggers"] = triggers_of(name)
            if shape in TOLD:
                document["notify"] = [{"events": ["run_succeeded"], "to": [TARGET]}]
            (directory / f"{name}.yaml").write_text(json.dumps(document).replace("API/", f"{api}/"))
            written += 1
    return written


def shape_of(dag: str) -> str:
    """What kind of DAG of ours it is."""
    return dag.rpartition("_")[0]


def tasks_of(dag: str) -> set[str]:
    """The tasks of a DAG of ours."""
    return {str(task["id"]) for task in SHAPES[shape_of(dag)]}


class Load:
    """Asks for ``rate`` runs a second, half through the API, half by records; every other record names its run."""

    def __init__(self, api: str, kafka: str, topic: str, partitions: int, rate: float) -> None:
        self._api = api
        self._kafka = kafka
        self._topic = topic
        self._rate = rate
        self._stop = threading.Event()
        self._names = self._endless(dags(partitions), partitions)
        self._lock = threading.Lock()
        #: Runs that were accepted under a name; places of records accepted without one.
        self.named: set[tuple[str, str]] = set()
        self.places: set[tuple[int, int]] = set()
        #: Requests that had to be asked again, records whose fate is not known.
        self.asked_again = 0
        self.doubtful = 0
        self._threads = [threading.Thread(target=self._ask, args=(n,), daemon=True) for n in range(2)]
        self._threads.append(threading.Thread(target=self._publish, daemon=True))

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask for nothing new; what was begun is asked to its end."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _endless(self, names: dict[str, dict[int, str]], partitions: int) -> Iterator[str]:
        for shape in itertools.cycle(_MIX):
            for shard in range(partitions):
                yield names[shape][shard]

    def _next(self) -> str:
        with self._lock:
            return next(self._names)

    def _ask(self, asker: int) -> None:
        """Through the API: no answer means to ask again under the same name, until there is one."""
        with httpx.Client(base_url=f"{self._api}/api/v1", timeout=_ANSWER_S) as client:
            for number in itertools.count():
                if self._stop.wait(4 / self._rate):
                    return
                dag, run_id = self._next(), f"api-{asker}-{number}"
                while not self._accepted(client, dag, run_id):
                    self.asked_again += 1
                    threading.Event().wait(0.3)
                with self._lock:
                    self.named.add((dag, run_id))

    @staticmethod
    def _accepted(client: httpx.Client, dag: str, run_id: str) -> bool:
        try:
            answer = client.post(f"/dags/{dag}/runs", json={"run_id": run_id})
        except httpx.TransportError:
            return False
        if answer.status_code not in (200, 201, 429, 502, 503, 504):
            raise AssertionError(f"the API answered {answer.status_code} to {dag} {run_id}: {answer.text}")
        return answer.status_code in (200, 201)

    def _publish(self) -> None:
        producer = self._producer()
        for number in itertools.count():
            if self._stop.wait(2 / self._rate):
                break
            dag, run_id = self._next(), f"record-{number}" if number % 2 else ""
            document = {"dag": dag, "run_id": run_id} if run_id else {"dag": dag}
            producer.produce(
                self._topic,
                key=dag,
                value=json.dumps(document),
                on_delivery=lambda error, message, named=(dag, run_id): self._delivered(error, message, named),
            )
            producer.poll(0)
        producer.flush(60)

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._kafka,
                "partitioner": "murmur2_random",
                "acks": "all",
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message[bytes, bytes], named: tuple[str, str]) -> None:
        with self._lock:
            if error is not None:
                self.doubtful += 1
            elif named[1]:
                self.named.add(named)
            else:
                self.places.add((message.partition() or 0, message.offset() or 0))
