"""One batch in the making: commands decided one after the other, to a fixpoint, against candidate states.

Nothing here touches the shards. If the commit succeeds the loop adopts the candidates (``adopt``); if not, it throws
the batch away and the shards are as they were.

The fixpoint may be far away: a task that asks its own DAG for three runs, whose tasks ask in turn, would grow one
batch to millions of runs. So a batch that holds ``RECORDS_IN_PLACE`` records sends what DAGs have to say to each
other (``BETWEEN_DAGS``) to their own partitions, as if their shards were another process's, and the next batches
decide it. The bound counts records, not commands: one launch may be two records or a thousand. What a DAG and a pool
say to each other is decided in place always. Its order matters (what joins a queue stands before what frees slots),
and it ends by itself: a cycle without end needs new runs without end. Those of one decision are bounded by the runs
that wait, those of schedules and backfills by a turn; only words between DAGs bring more of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import cast

import msgspec
import structlog

from tidewheel.core import commands as c
from tidewheel.core.deadlines import AT_ONCE, Timer, armed_by, deadline_armed_by
from tidewheel.core.decide import Answer, Decision, decide, expects_reply
from tidewheel.core.events import AnyEvent
from tidewheel.core.mail import AnyMail, Reply
from tidewheel.core.rules import Rules
from tidewheel.core.snapshot import empty
from tidewheel.core.state import Aggregate, Dag, Pool
from tidewheel.log.interface import COMMANDS, MAIL, TRIGGERS, Append, Record
from tidewheel.runtime.letters import dead_letter
from tidewheel.runtime.shard import JOURNAL_OF, AggregateKey, JournalHead, Shard, shard_of, target_of
from tidewheel.wire.codec import encode, encode_event
from tidewheel.wire.messages import TriggerRun

log = structlog.get_logger()

#: Records of a batch (events and commands for other shards) from which on what DAGs say to each other waits for a later
#: batch. A quarter of what makes the loop take smaller ones (``scheduler.BATCH_EVENTS``).
RECORDS_IN_PLACE = 5_000
#: What DAGs say to each other. It stands for itself in any order and may come twice, since it may cross processes.
BETWEEN_DAGS = (c.LaunchRun, c.ReportLaunch, c.ReportRunEnd, c.RecallRun, c.WatchRun, c.ReportWait)


def mail_append(message: AnyMail, partitions: int) -> Append:
    """The mail as a record for its receiver's partition."""
    partition = message.partition
    if partition < 0:
        partition = shard_of(message.receiver, partitions)
    return Append(MAIL, message.receiver.encode(), encode(message), partition=partition % partitions)


def _trigger(command: c.StartRun) -> TriggerRun:
    """The record that asked for the command, with the run's id that its first place gave it."""
    return TriggerRun(
        dag=command.dag,
        run_id=command.run_id,
        inputs=command.inputs,
        trigger=command.trigger,
        origin=command.origin,
    )


class Work:
    """Decides a batch at ``now`` for the shards a process owns."""

    def __init__(self, shards: Mapping[int, Shard], partitions: int, rules: Rules, now: int) -> None:
        self._shards = shards
        self._partitions = partitions
        self._rules = rules
        self._rules_full = msgspec.structs.replace(rules, shard_full=True)
        self._now = now
        self._states: dict[AggregateKey, Aggregate] = {}
        self._heads: dict[tuple[int, str], JournalHead] = {}
        self._queue: deque[tuple[c.Command, str]] = deque()
        self._pools: dict[str, None] = {}
        self._event_count: dict[int, int] = {}
        self._armed: list[tuple[int, Timer]] = []
        #: Shard, journal topic, event and cause of each event.
        self._causes: list[tuple[int, str, object, str]] = []
        self.appends: list[Append] = []
        self.mail: list[Append] = []
        self.events = 0

    def handle(self, command: c.Command, cause: str, record: Record | None = None) -> None:
        """Decide ``command`` and everything that follows from it within this process."""
        self._decide(command, cause, record)
        self._drain()

    def dag(self, name: str) -> Dag | None:
        """The DAG as this batch has made it so far; None if there is none, or it is not in these shards."""
        key = AggregateKey("dag", name)
        shard = self._shards.get(shard_of(name, self._partitions))
        state = self._states.get(key) or (shard.aggregates.get(key) if shard is not None else None)
        return state if isinstance(state, Dag) else None

    def settle(self) -> None:
        """Give out what the batch left free, until nobody in these shards has anything more to say."""
        while self._pools:
            pool = next(iter(self._pools))
            del self._pools[pool]
            self._decide(c.AllocateSlots(pool=pool), "allocation", None)
            self._drain()

    def _drain(self) -> None:
        while self._queue:
            command, cause = self._queue.popleft()
            if isinstance(command, BETWEEN_DAGS) and len(self.appends) >= RECORDS_IN_PLACE:
                self._send_on(command)
            else:
                self._decide(command, cause, None)

    def _send_on(self, command: c.Command) -> None:
        """Leave the command to whoever owns its target, or to a later batch."""
        name = target_of(cast("c.DagCommand | c.PoolCommand", command)).name
        partition = shard_of(name, self._partitions)
        self.appends.append(Append(COMMANDS, name.encode(), encode(command), partition=partition))

    def _decide(self, command: c.Command, cause: str, record: Record | None) -> None:
        key = target_of(cast("c.DagCommand | c.PoolCommand", command))
        number = shard_of(key.name, self._partitions)
        shard = self._shards.get(number)
        if shard is None:
            self._send_on(command)
            return
        state = self._states.get(key) or shard.aggregates.get(key) or empty(*key)
        try:
            decision = decide(state, command, self._now, self._rules_full if shard.full else self._rules)
            mail = [mail_append(message, self._partitions) for message in decision.mail]
            self._record(shard, key, state, decision, cause)
        except Exception as error:  # one command that we can not decide must not stop the shard
            log.exception(
                "a command could not be decided", command=type(command).__name__, target=key.name, cause=cause
            )
            self.reject(record, "failed", f"{type(command).__name__} for {key.kind} '{key.name}': {error!r}", command)
            return
        self.mail += mail
        for follow_up in decision.commands:
            self._queue.append((follow_up, cause))
        self._answer(command, decision.answer, shard, key, record)

    def _record(
        self, shard: Shard, key: AggregateKey, before: Aggregate, decision: Decision[Aggregate], cause: str
    ) -> None:
        """Write the decision's events behind the journal's end. All of them are encoded before any is kept."""
        if not decision.events:
            return
        topic = JOURNAL_OF[key.kind]
        head = self._heads.get((shard.number, topic)) or shard.heads[topic]
        name = key.name.encode()
        shard_seq, chain, seq = head.shard_seq, head.chain, before.seq
        appends = []
        armed = []
        for event in decision.events:
            shard_seq += 1
            seq += 1
            data, chain = encode_event(
                cast(AnyEvent, event),
                seq=seq,
                shard_seq=shard_seq,
                writer=shard.writer,
                cause=cause,
                previous=chain,
            )
            appends.append(Append(topic, name, data, partition=shard.number))
            timer = armed_by(event, decision.state, self._rules.backlog_runs)
            if timer is not None:
                armed.append(timer)
            if (deadline := deadline_armed_by(event, decision.state)) is not None:
                armed.append(deadline)
        armed += [(AT_ONCE, c.ContinueRun(dag=key.name, run_id=run_id)) for run_id in decision.unfinished]
        self.appends += appends
        self._armed += armed
        self._heads[shard.number, topic] = JournalHead(head.offset, shard_seq, chain, shard.writer)
        self._states[key] = decision.state
        self._causes += [(shard.number, topic, event, cause) for event in decision.events]
        self._event_count[shard.number] = self._event_count.get(shard.number, 0) + len(appends)
        self.events += len(appends)
        if isinstance(decision.state, Pool) and decision.state.heads:
            self._pools[key.name] = None

    def _answer(
        self, command: c.Command, answer: Answer | None, shard: Shard, key: AggregateKey, record: Record | None
    ) -> None:
        if answer is None:
            return
        if expects_reply(command):
            request = cast(c.Request, command)
            topic = JOURNAL_OF[key.kind]
            head = self._heads.get((shard.number, topic)) or shard.heads[topic]
            reply = Reply(
                receiver=request.receiver,
                partition=request.reply_partition % self._partitions,
                request_id=request.request_id,
                ok=answer.ok,
                message=answer.message,
                code=answer.code,
                run_id=answer.run_id,
                backfill_id=answer.backfill_id,
                created=answer.created,
                details=answer.details,
                position=f"{topic}/{shard.number}/{head.shard_seq}",
            )
            self.mail.append(mail_append(reply, self._partitions))
        elif not answer.ok and answer.code != "stale":
            self.reject(record, answer.code, answer.message, command)

    def reject(self, record: Record | None, code: str, reason: str, command: c.Command | None = None) -> None:
        """Keep what could not be decoded or applied among the dead letters, with the reason and where it came from."""
        if record is None:
            value = msgspec.json.encode(command)
            record = Record("engine", 0, 0, None if command is None else type(command).__name__.encode(), value)
        self.appends.append(dead_letter(record, code, reason, self._now))
        log.warning(
            "dead letter", code=code, reason=reason, source=f"{record.topic}/{record.partition}/{record.offset}"
        )

    def forward(self, record: Record, key: str, command: c.Command) -> None:
        """Send a record that lies on the wrong partition to its right one, decoded, so that its identity stays its
        first place's. A trigger stays a trigger, which may have to wait."""
        if isinstance(command, c.StartRun) and not command.run_id:
            place = f"{record.topic}.{record.partition}.{record.offset}.{record.timestamp}"
            command = msgspec.structs.replace(command, run_id=f"{command.kind}__{place}")
        topic, data = record.topic, encode(command)
        if isinstance(command, c.StartRun) and topic == TRIGGERS:
            data = encode(_trigger(command))
        self.appends.append(Append(topic, key.encode(), data, partition=shard_of(key, self._partitions)))
        log.info(
            "forwarded a record keyed wrongly", source=f"{record.topic}/{record.partition}/{record.offset}", key=key
        )

    def adopt(self, last_offsets: Mapping[tuple[str, int], int]) -> list[tuple[int, Timer]]:
        """The batch is committed: move the shards to its end. Gives the timers to arm."""
        for key, state in self._states.items():
            shard = self._shards[shard_of(key.name, self._partitions)]
            shard.count_change(shard.aggregates.get(key), state)
            shard.aggregates[key] = state
            shard.dirty.add(key)
        for (number, topic), head in self._heads.items():
            last = last_offsets[topic, number]
            self._shards[number].heads[topic] = JournalHead(last + 1, head.shard_seq, head.chain, head.writer, last)
        for number, events in self._event_count.items():
            self._shards[number].events_since_checkpoint += events
        for number, topic, event, cause in self._causes:
            self._shards[number].answered.note(topic, event, cause)
        return self._armed
