"""What a broker can do to a scheduler: freeze, die, come back, be set up wrongly."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tidewheel.log.interface import (
    COMMANDS,
    EVENTS,
    MAIL,
    TOPICS,
    CommitInDoubt,
    LogError,
    LogMisconfigured,
    LogUnavailable,
    Owner,
)
from tidewheel.log.kafka import KafkaLog, topics
from tidewheel.log.kafka.settings import wanted_config
from tidewheel.log.kafka.watchdog import EXIT_CODE, Watchdog
from tidewheel.testing.kafka_broker import KafkaBroker, KafkaContainer, own_broker
from tidewheel.testing.log_contract.driver import (
    PARTITIONS,
    command,
    event,
    owns_all,
    poll_records,
    poll_until,
    read_all,
    send,
    texts,
)

pytestmark = pytest.mark.kafka

_number = itertools.count()
Broker = KafkaBroker | KafkaContainer


def _fresh_prefix() -> str:
    return f"faults{os.getpid()}-{next(_number)}."


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Our own: others must not suffer when it is frozen or killed."""
    with own_broker(short_lived=True) as broker:
        yield broker


def _patient_reset(owner: Owner) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            owner.reset()
            return
        except LogUnavailable:
            assert time.monotonic() < deadline


def _settle_doubt(log: KafkaLog, owner: Owner) -> None:
    """After a doubt the journal and the positions agree: the command is answered once, now or before."""
    _patient_reset(owner)
    batch = poll_until(owner, owns_all)
    if not batch.records and log.committed(0)[COMMANDS] == 0:
        records, batch = poll_records(owner, 1)
        assert texts(records) == ["in"]
    if log.committed(0)[COMMANDS] == 0:
        owner.commit(batch, [event("out")])
    assert texts(read_all(log, EVENTS)) == ["out"]
    assert log.committed(0)[COMMANDS] == 1


class TestOutage:
    @pytest.fixture
    def log(self, broker: Broker) -> Iterator[KafkaLog]:
        self.stuck: list[str] = []
        log = KafkaLog(
            broker.address,
            _fresh_prefix(),
            PARTITIONS,
            call_s_max=2.0,
            stuck_s=5.0,
            on_stuck=lambda doing, seconds: self.stuck.append(doing),
        )
        log.create_topics()
        yield log
        log.close()

    def test_a_frozen_broker_leaves_the_commit_in_doubt_and_a_reset_settles_it(
        self, broker: Broker, log: KafkaLog
    ) -> None:
        """Also C115: no call outlives its time-out by much, or the watchdog speaks."""
        owner = log.owner("a")
        owner.commit(poll_until(owner, owns_all), [])
        send(log, command("in"))
        _, batch = poll_records(owner, 1)
        broker.pause()
        begun = time.monotonic()
        try:
            with pytest.raises(CommitInDoubt):
                owner.commit(batch, [event("out")])
            assert time.monotonic() - begun < 25 or self.stuck
        finally:
            broker.resume()
        _settle_doubt(log, owner)
        owner.close()

    def test_a_broker_frozen_while_the_commit_is_under_way(self, broker: Broker, log: KafkaLog) -> None:
        owner = log.owner("a")
        owner.commit(poll_until(owner, owns_all), [])
        send(log, command("in"))
        _, batch = poll_records(owner, 1)
        failures: list[LogError] = []

        def commit() -> None:
            try:
                owner.commit(batch, [event("out")])
            except LogError as error:
                failures.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        time.sleep(0.004)
        broker.pause()
        thread.join(30)
        broker.resume()
        if failures:
            _settle_doubt(log, owner)
        assert texts(read_all(log, EVENTS)) == ["out"]
        owner.close()

    def test_a_broker_killed_and_started_again(self, broker: Broker, log: KafkaLog) -> None:
        owner = log.owner("a")
        owner.commit(poll_until(owner, owns_all), [])
        # A single broker killed between a commit's answer and its markers forgets them (Kafka 4.4): not what is tried
        # here.
        assert log.committed(0)[COMMANDS] == 0
        producer = log.producer()
        broker.kill()
        producer.send(command("in"))
        with pytest.raises(LogUnavailable, match="not durable on Kafka"):
            producer.flush(0.5)
        assert owner.poll(10, 0.2).records == ()
        broker.start()
        producer.flush(30)
        records, batch = poll_records(owner, 1)
        assert texts(records) == ["in"]
        try:
            owner.commit(batch, [event("out")])
        except LogError:
            _settle_doubt(log, owner)
        assert texts(read_all(log, EVENTS)) == ["out"]
        owner.close()

    def test_a_dead_owner_s_open_transaction_holds_up_only_its_own_shards(self, broker: Broker, log: KafkaLog) -> None:
        owner = log.owner("a")
        batch = poll_until(owner, owns_all)
        group = batch.token[0]
        dead = Producer(
            {
                "bootstrap.servers": broker.address,
                "transactional.id": log._prefix + "dead",
                "transaction.timeout.ms": 5000,
            }
        )
        dead.init_transactions(20)
        dead.begin_transaction()
        dead.produce(log._prefix + EVENTS, b"never", b"etl", 2)
        dead.send_offsets_to_transaction([TopicPartition(log._prefix + COMMANDS, 2, 0)], group, 5)
        owner.reset()
        ready = poll_until(owner, lambda new: len(new.shards) >= PARTITIONS - 1)
        assert set(ready.shards) == {0, 1, 3}
        owner.commit(ready, [event("others go on", 1)])
        poll_until(owner, owns_all)
        assert read_all(log, EVENTS, 2) == []
        assert texts(read_all(log, EVENTS, 1)) == ["others go on"]
        owner.close()


class TestSetup:
    @pytest.fixture
    def admin(self, kafka_address: str) -> AdminClient:
        self.address = kafka_address
        self.prefix = _fresh_prefix()
        return AdminClient({"bootstrap.servers": kafka_address})

    def _create(
        self, admin: AdminClient, topic: str, partitions: int = PARTITIONS, setting: str = "", value: str = ""
    ) -> None:
        settings = wanted_config(topic, 1) | ({setting: value} if setting else {})
        new = NewTopic(self.prefix + topic, num_partitions=partitions, replication_factor=1, config=settings)
        for future in admin.create_topics([new]).values():
            future.result()

    def test_missing_topics_are_named(self, admin: AdminClient) -> None:
        log = KafkaLog(self.address, self.prefix, PARTITIONS)
        with pytest.raises(
            LogMisconfigured, match=r"no topic 'faults.*triggers' .*\(8 missing\): run `tidewheel topics"
        ):
            log.check_topics()
        with pytest.raises(LogMisconfigured, match="run `tidewheel topics create`"):
            log.owner("a")

    def test_what_is_missing_is_created_beside_what_is_there(self, admin: AdminClient) -> None:
        self._create(admin, EVENTS)
        time.sleep(0.3)
        log = KafkaLog(self.address, self.prefix, PARTITIONS)
        assert sorted(log.create_topics()) == sorted(set(TOPICS) - {EVENTS})

    def test_of_what_was_created_a_broker_may_hear_late(
        self, kafka_address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three brokers learn of a topic one after another, and any of them may be asked."""
        unheard = [3]
        look = topics.existing

        def existing(admin: AdminClient, servers: str, prefix: str) -> tuple[dict[str, int], int]:
            present, brokers = look(admin, servers, prefix)
            if present and unheard[0]:
                unheard[0] -= 1
                present.pop(EVENTS)
            return present, brokers

        monkeypatch.setattr(topics, "existing", existing)
        assert len(KafkaLog(kafka_address, _fresh_prefix(), PARTITIONS).create_topics()) == len(TOPICS)
        assert unheard == [0]

    def test_another_number_of_partitions_is_refused(self, admin: AdminClient) -> None:
        self._create(admin, MAIL, PARTITIONS + 1)
        time.sleep(0.3)
        log = KafkaLog(self.address, self.prefix, PARTITIONS)
        with pytest.raises(LogMisconfigured, match=r"mail' has 5 partitions, expected 4"):
            log.create_topics()

    @pytest.mark.parametrize(
        ("topic", "setting", "value"),
        [
            (EVENTS, "retention.ms", "604800000"),
            (EVENTS, "retention.bytes", "1000000000"),
            ("pool-events", "cleanup.policy", "compact"),
            ("snapshots", "cleanup.policy", "delete"),
            (COMMANDS, "max.message.bytes", "1000000"),
            ("triggers", "retention.ms", "60000"),
            (COMMANDS, "retention.bytes", "1000000"),
            (EVENTS, "min.insync.replicas", "2"),
            (EVENTS, "unclean.leader.election.enable", "true"),
        ],
    )
    def test_a_setting_that_loses_data_is_refused(
        self, admin: AdminClient, topic: str, setting: str, value: str
    ) -> None:
        self._create(admin, topic, setting=setting, value=value)
        time.sleep(0.3)
        log = KafkaLog(self.address, self.prefix, PARTITIONS)
        with pytest.raises(
            LogMisconfigured, match=rf"{topic}' has {setting}={value}, expected .*--add-config {setting}="
        ):
            log.create_topics()

    def test_wrong_settings_are_put_right_on_request(self, admin: AdminClient) -> None:
        self._create(admin, EVENTS, setting="retention.ms", value="1000")
        self._create(admin, COMMANDS, setting="unclean.leader.election.enable", value="true")
        time.sleep(0.3)
        log = KafkaLog(self.address, self.prefix, PARTITIONS)
        with pytest.raises(LogMisconfigured, match="`tidewheel topics create --repair` mends them all"):
            log.create_topics()
        wrong = {(setting.topic, setting.name) for setting in log.inspect_topics() if setting.verdict == "wrong"}
        assert wrong == {(EVENTS, "retention.ms"), (COMMANDS, "unclean.leader.election.enable")}
        log.create_topics(repair=True)
        assert {setting.verdict for setting in log.inspect_topics()} == {"ok"}

    def test_an_instance_name_that_kafka_cannot_take(self, kafka_address: str) -> None:
        log = KafkaLog(kafka_address, _fresh_prefix(), PARTITIONS)
        with pytest.raises(LogMisconfigured, match="instance name 'my host' cannot be used"):
            log.owner("my host")


class TestWatchdog:
    def test_a_call_that_returns_is_left_alone(self) -> None:
        stuck: list[str] = []
        dog = Watchdog(0.2, lambda doing, seconds: stuck.append(doing))
        for _ in range(10):
            with dog.watching("short"):
                time.sleep(0.05)
        dog.close()
        assert stuck == []

    def test_a_call_that_does_not_return_is_reported_once(self) -> None:
        stuck: list[str] = []
        dog = Watchdog(0.2, lambda doing, seconds: stuck.append(doing))
        with dog.watching("a transaction"):
            time.sleep(0.6)
        dog.close()
        assert stuck == ["a transaction"]

    def test_by_default_the_process_ends(self) -> None:
        script = (
            "import time\n"
            "from tidewheel.log.kafka.watchdog import Watchdog, end_process\n"
            "with Watchdog(0.2, end_process).watching('a transaction'):\n"
            "    time.sleep(30)\n"
        )
        root = Path(__file__).parents[2]
        ended = subprocess.run([sys.executable, "-c", script], cwd=root, timeout=20, capture_output=True, check=False)
        assert ended.returncode == EXIT_CODE


def test_a_producer_made_before_a_fork_says_so(kafka_address: str) -> None:
    """C117: librdkafka's threads do not survive a fork; without a word the records would never be sent."""
    script = (
        "import os, sys\n"
        "from tidewheel.log.interface import Append, LogError\n"
        "from tidewheel.log.kafka import KafkaLog\n"
        f"producer = KafkaLog('{kafka_address}', 'fork.', 4).producer()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        producer.send(Append('mail', b'k', b'v', partition=0))\n"
        "    except LogError as error:\n"
        "        os._exit(7 if 'before a fork' in str(error) else 1)\n"
        "    os._exit(0)\n"
        "os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], timeout=30, capture_output=True, check=False
    )
    assert ended.returncode == 7


def test_a_broker_dies_with_the_process_that_started_it() -> None:
    script = (
        "from tidewheel.testing.kafka_broker import own_broker\n"
        "broker = own_broker(short_lived=True).start()\n"
        "print(broker.port, flush=True)\n"
        "input()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    port = int(starter.stdout.readline())
    log = KafkaLog(f"127.0.0.1:{port}")
    log.close()
    starter.kill()
    starter.wait()
    deadline = time.monotonic() + 10
    while True:
        try:
            KafkaLog(f"127.0.0.1:{port}").close()
        except LogUnavailable:
            break
        assert time.monotonic() < deadline, "the broker lives on"
