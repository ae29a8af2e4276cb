"""One owner's transactions on Kafka, and what their failures mean.

Until ``commit_transaction`` is called a failure is certain: the transaction is aborted, at the latest by the next
producer's ``init_transactions``. From that call on, only an answer that asks for an abort is certain; anything else is
doubt, also a fatal "fenced", for an earlier try of the same request may have been carried out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tidewheel.log.interface import EVENTS, Append, CommitAborted, CommitInDoubt, Fenced, LogError, LogUnavailable
from tidewheel.log.kafka.calls import CallThread
from tidewheel.log.kafka.client import MESSAGE_BYTES_MAX, Config, LogLines, fault_of, place_of, unavailable
from tidewheel.log.kafka.watchdog import Watchdog

#: The broker aborts what is left open longer; of the order of the session time-out, for both bound a takeover.
TRANSACTION_TIMEOUT_MS = 6000
#: A coordinator that has just started loads its state first, and one that is gone may come back.
_INIT_S_MAX = 15.0
_ABORT_S_MAX = 5.0
#: How long a call that is cut off from its broker may go on: a connection that merely broke is back by then.
_CUT_OFF_S_MAX = 1.0
#: How much longer than its own time-out a call may take.
_OVERTIME_S = 1.0

_GROUP_FENCES = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
}
_PRODUCER_FENCES = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class GroupFenced(Fenced):
    """The group itself does not know us in this generation any more: join anew."""


class Transactions:
    """A transactional producer that is replaced after any doubt.

    ``group_metadata`` names the group of the positions without being a member of it.
    """

    def __init__(
        self,
        config: Config,
        servers: str,
        prefix: str,
        instance: str,
        call_s_max: float,
        dog: Watchdog,
        group_metadata: Callable[[], object],
    ) -> None:
        self._servers = servers
        self._group_metadata = group_metadata
        self._call_s_max = call_s_max
        self._watchdog = dog
        self._config: Config = {
            **config,
            "transactional.id": prefix + instance,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "partitioner": "murmur2_random",
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "linger.ms": 0,
            # The next transaction's first request often meets the last one's end, which takes the broker a moment more.
            # Measured back to back, median: 4 ms with 1 ms here, 6 ms with 2 ms, 8 ms with 5 ms; the default is 100 ms.
            "retry.backoff.ms": 1,
            "logger": LogLines(self._notice),
        }
        self._prefix = prefix
        self._last: dict[tuple[str, int], int] = {}
        self._broken = False
        #: When a connection was lost that the producer had; none yet.
        self._lost_at: float | None = None
        #: A transaction of this name may have left positions behind; so may one of a life before.
        self._unsettled = True
        self._producer: Producer | None = None
        self._calls = CallThread()
        self.settle()

    def run(
        self, appends: Sequence[Append], positions: list[TopicPartition], group: object
    ) -> Mapping[tuple[str, int], int]:
        """Append and move positions in one transaction; gives the last offsets, by full topic name."""
        producer = self._ready_producer()
        with self._watchdog.watching("a transaction"):
            self._last = {}
            self._unsettled = True
            try:
                producer.begin_transaction()
                self._produce(producer, appends)
                self._send_positions(producer, positions, group)
            except KafkaException as error:
                raise self._failed_before_commit(producer, error) from error
            except TimeoutError as error:
                self._broken = True
                raise CommitInDoubt("the transaction stopped before its commit: its positions got no answer") from error
            try:
                producer.commit_transaction(self._call_s_max)
            except KafkaException as error:
                raise self._failed_in_commit(producer, error) from error
            self._unsettled = False
            producer.poll(0)
            return self._last

    def _send_positions(self, producer: Producer, positions: list[TopicPartition], group: object) -> None:
        """Raises ``TimeoutError`` if the call does not come back."""
        deadline = time.monotonic() + self._call_s_max + _OVERTIME_S

        def give_up() -> bool:
            producer.poll(0)
            now = time.monotonic()
            return now > deadline or (self._lost_at is not None and now - self._lost_at > _CUT_OFF_S_MAX)

        self._calls.call(
            lambda: producer.send_offsets_to_transaction(positions, group, self._call_s_max),
            give_up,
        )

    def _ready_producer(self) -> Producer:
        """The producer, or a new one if it has lost a connection since: nothing is open now, so that is cheap.

        librdkafka 2.16 remembers the group's coordinator by a handle that it drops when the broker leaves the cluster's
        metadata for a moment; ``send_offsets_to_transaction`` then waits for that handle for ever.
        """
        assert self._producer is not None
        self._producer.poll(0)
        if self._lost_at is not None:
            self._broken = True
            try:
                self.settle()
            except LogUnavailable as error:
                raise CommitAborted(f"nothing was begun: {error}") from error
        return self._producer

    def _notice(self, line: str) -> None:
        """Called from ``poll``. A failure to connect to some broker is no news; the loss of what was up is.

        Only the log tells: the error callback stays silent until all brokers are down.
        """
        if "in state UP" in line and self._lost_at is None:
            self._lost_at = time.monotonic()

    def settle(self) -> None:
        """Make a new producer if the last failure left anything open; that ends the old transaction either way."""
        producer = self._producer
        if self._broken or producer is None:
            self._discard()
            producer = self._start()
        if self._unsettled:
            self._take_back_positions(producer)

    def close(self) -> None:
        """Let go; nothing is open between transactions."""
        self._calls.close()
        self._discard()

    def _take_back_positions(self, producer: Producer) -> None:
        """Abort a transaction of positions, of a topic whose positions nobody reads.

        A broker that was killed hard may come back with a transaction ended and its positions still unsettled
        (Kafka 4.4): whoever asks for them waits for ever, and this name's next commit would make them count, although
        the transaction was aborted. They are settled with the next transaction of this name that holds any position,
        and dropped if that one is aborted.
        """
        group = self._group_metadata()
        parked = [TopicPartition(self._prefix + EVENTS, 0, 0)]
        with self._watchdog.watching("taking back positions", _ABORT_S_MAX):
            try:
                producer.begin_transaction()
                self._send_positions(producer, parked, group)
                producer.abort_transaction(_ABORT_S_MAX)
            except (KafkaException, TimeoutError) as error:
                self._broken = True
                why = fault_of(error).str() if isinstance(error, KafkaException) else "no answer"
                raise LogUnavailable(f"Kafka at {self._servers} does not settle positions: {why}") from error
        self._unsettled = False

    def _start(self) -> Producer:
        producer = Producer(self._config)
        try:
            with self._watchdog.watching("init_transactions", _INIT_S_MAX):
                producer.init_transactions(_INIT_S_MAX)
        except KafkaException as error:
            raise unavailable(self._servers, "starting transactions", error) from error
        self._producer = producer
        self._broken, self._lost_at = False, None
        return producer

    def _discard(self) -> None:
        """Destroy the producer in a thread of its own: that can wait for a broker that is gone."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._broken:
            producer.purge()
        waiting = [producer]
        del producer
        threading.Thread(target=waiting.clear, name="kafka-discard", daemon=True).start()

    def _produce(self, producer: Producer, appends: Sequence[Append]) -> None:
        names = {record.topic: self._prefix + record.topic for record in appends}
        lasts = {
            (record.topic, record.partition, record.key if record.partition is None else b""): index
            for index, record in enumerate(appends)
        }
        wanted = set(lasts.values())
        deadline = time.monotonic() + self._call_s_max
        for index, record in enumerate(appends):
            while True:
                try:
                    producer.produce(
                        names[record.topic],
                        record.value,
                        record.key,
                        -1 if record.partition is None else record.partition,
                        on_delivery=self._delivered if index in wanted else None,
                        headers=list(record.headers) if record.headers else None,
                    )
                    break
                except BufferError:
                    if time.monotonic() > deadline:
                        self._broken = True
                        raise CommitAborted(f"Kafka at {self._servers} takes no more records") from None
                    producer.poll(0.05)

    def _delivered(self, error: KafkaError | None, message: Message[bytes, bytes]) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            place = place_of(message)
            self._last[place] = max(self._last.get(place, -1), offset)

    def _failed_before_commit(self, producer: Producer, error: KafkaException) -> LogError:
        fault = fault_of(error)
        if fault.fatal():
            self._broken = True
        elif fault.txn_requires_abort():
            self._abort(producer)
        else:
            self._broken = True
            return CommitInDoubt(f"the transaction stopped before its commit: {fault.str()}")
        return _certain(fault)

    def _failed_in_commit(self, producer: Producer, error: KafkaException) -> LogError:
        fault = fault_of(error)
        if fault.txn_requires_abort() and not fault.fatal():
            self._abort(producer)
            return _certain(fault)
        self._broken = True
        return CommitInDoubt(f"the commit was not answered for certain: {fault.str()}")

    def _abort(self, producer: Producer) -> None:
        """Abort now; or, where nobody would hear it, leave that to the next producer."""
        producer.poll(0)
        if self._lost_at is not None:
            self._broken = True
            return
        try:
            producer.abort_transaction(_ABORT_S_MAX)
        except KafkaException:
            self._broken = True


def _certain(fault: KafkaError) -> LogError:
    if fault.code() in _GROUP_FENCES:
        return GroupFenced(f"the group of schedulers has moved on without us: {fault.str()}")
    if fault.code() in _PRODUCER_FENCES:
        return Fenced(f"another producer has taken our place, or our transaction timed out: {fault.str()}")
    return CommitAborted(f"the transaction was aborted: {fault.str()}")
