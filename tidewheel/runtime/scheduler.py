"""The loop every scheduler runs: poll, decide, commit, adopt, send mail.

One transaction a batch holds events, commands for other shards and the input positions, and carries the fence: if a
shard has changed hands, nothing of the batch exists. States are immutable, so whatever happens to a commit, memory is
brought in line by the same step that a takeover uses: fold what the journal holds beyond what is folded
(``runtime.recovery``).

Mail goes out after the commit. A scheduler that dies in between has promised nothing: the next owner sends open
leases again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import msgspec
import structlog

from tidewheel.core.commands import ContinueRun
from tidewheel.core.deadlines import Timer
from tidewheel.core.decide import resend_leases
from tidewheel.core.expressions import Evaluator
from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag
from tidewheel.log.interface import (
    Append,
    Batch,
    CommitAborted,
    CommitInDoubt,
    Fenced,
    Log,
    LogUnavailable,
)
from tidewheel.runtime.backlog import Backlog
from tidewheel.runtime.checkpoints import Round, claim_append
from tidewheel.runtime.intake import take_in
from tidewheel.runtime.quarantine import Quarantine, StoppedShard
from tidewheel.runtime.readback import ReadBack
from tidewheel.runtime.recovery import bring_each_up_to_date
from tidewheel.runtime.shard import JournalHead, Shard
from tidewheel.runtime.timers import Timers
from tidewheel.runtime.work import Work, mail_append

log = structlog.get_logger()

#: Input records and timers of one batch: the transaction stays well under a second at a millisecond a command.
BATCH_RECORDS = 500
#: One command may come to thousands of events. After a batch of more events than this, or one that could not be
#: committed, fewer records are taken, down to one: else a batch too large for a transaction would be tried for ever.
BATCH_EVENTS = 20_000
#: Events that the timers of a turn have come to from which on runs that go on in steps wait for the next turn.
STEPS_EVENTS = 2_000
#: The loop looks up at least this often, whatever the clocks say.
POLL_S_MAX = 1.0
#: The same while triggers that waited are being read, which nothing else announces.
_READING_S = 0.02
#: A checkpoint a shard after so many events: a takeover then folds at most about a second's worth.
CHECKPOINT_EVENTS = 20_000
#: A shard that went stays in memory so long: where shards move, they often come back within seconds.
KEEP_LOST_MS = 60_000
#: How often a shard that has grown says outside its journal how far that reaches.
CLAIM_MS = 30_000
#: Pause after a fault of the log, doubling up to the second figure: a log that is back is not to wait for us.
_RETRY_S = (0.2, 1.0)


def wall_clock_ms() -> int:
    """Now, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler tells of itself."""

    instance: str
    shards: tuple[int, ...]
    batches: int
    events: int
    inputs: int
    aborts: int
    #: Shards that are owned and stand still, because their journal does not prove itself.
    stopped: tuple[StoppedShard, ...]
    #: How long the last commit took, and when it was (ms since the epoch; 0: none yet).
    commit_ms: float
    committed_at: int
    #: Shards that read no triggers, and DAGs whose triggers wait, because too many runs do.
    paused_shards: tuple[int, ...]
    postponed_dags: tuple[str, ...]
    #: When the loop last took what it had read (ms since the epoch).
    turned_at: int


class Scheduler:
    """Owns shards of ``log`` as ``instance`` and runs their DAGs and pools.

    ``step`` is one turn of the loop and everything that ``run`` repeats; simulations call it themselves, with their
    own ``clock``.
    """

    def __init__(
        self,
        source: Log,
        instance: str,
        evaluator: Evaluator,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        rules: Rules | None = None,
        checkpoint_events: int = CHECKPOINT_EVENTS,
    ) -> None:
        self._log = source
        self._instance = instance
        self._clock = clock
        self._rules = rules or Rules(evaluator=evaluator)
        self._checkpoint_events = checkpoint_events
        self._owner = source.owner(instance)
        self._producer = source.producer()
        self._backlog = Backlog(source, self._owner, self._rules)
        self._owned: dict[int, Shard] = {}
        #: Shards that went a while ago, and when, so that one that comes back is folded on from where it was left.
        self._lost: dict[int, tuple[int, Shard]] = {}
        self._quarantine = Quarantine(source, self._owner, self._producer, instance)
        self._read_back = ReadBack(source)
        self._claim_at = 0
        #: The checkpoint that is being written.
        self._round: Round | None = None
        self._timers = Timers(self._rules, source.partitions)
        self._batches = self._events = self._inputs = self._aborts = 0
        self._commit_ms = 0.0
        self._committed_at = 0
        self._turned_at = clock()
        #: Records and timers of the next batch.
        self._most = BATCH_RECORDS
        #: A turn was cut short between reading its batch and its end.
        self._interrupted = False
        #: Inputs of the last turns without a break that the journal answers already.
        self._passed_over = 0

    @property
    def status(self) -> Status:
        """A snapshot of the loop's figures; safe to read from another thread."""
        return Status(
            instance=self._instance,
            shards=tuple(sorted(self._owned)),
            batches=self._batches,
            events=self._events,
            inputs=self._inputs,
            aborts=self._aborts,
            stopped=self._quarantine.stopped,
            commit_ms=self._commit_ms,
            committed_at=self._committed_at,
            paused_shards=self._backlog.paused,
            postponed_dags=self._backlog.postponed,
            turned_at=self._turned_at,
        )

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set. A log that is away is waited for."""
        pause = _RETRY_S[0]
        try:
            while not stop.is_set():
                aborts = self._aborts
                try:
                    self.step(POLL_S_MAX)
                except LogUnavailable as error:
                    log.error("the log is not available; trying again", why=str(error), in_s=pause)
                else:
                    if self._aborts == aborts:
                        pause = _RETRY_S[0]
                        continue
                stop.wait(pause)
                pause = min(pause * 2, _RETRY_S[1])
        finally:
            self.close()

    def close(self) -> None:
        """Give the shards up at once."""
        self._backlog.close()
        self._read_back.close()
        self._owner.close()
        self._producer.close()

    def step(self, timeout_s: float) -> bool:
        """One turn: wait at most ``timeout_s`` for something to do, and do it. True if anything was committed.

        After a turn that an exception cut short, the next one reads its batch again and sends open leases again.
        """
        if self._interrupted:
            self._give_up_round()
            self._owner.reset()
        self._interrupted = True
        committed = self._turn(timeout_s)
        self._interrupted = False
        return committed

    def _turn(self, timeout_s: float) -> bool:
        batch = self._owner.poll(self._most, self._wait_s(timeout_s))
        self._follow_ownership(batch)
        now = self._clock()
        self._forgive_absence(now)
        work = Work(self._owned, self._log.partitions, self._rules, now)
        inputs = [record for record in batch.records if record.partition in self._owned]
        again = 0
        for record in inputs:
            answered = self._owned[record.partition].answered
            again += not take_in(work, record, self._log.partitions, self._backlog, answered)
        self._tell_passed_over(again)
        timers = self._fire_due(work, now)
        self._backlog.read_on(work, self._owned, max(self._most - len(inputs), self._most // 4, 1))
        work.settle()
        claimed = self._claim(work, now)
        worth_it = self._backlog.note() or bool(inputs or work.appends)
        if worth_it and not self._commit(batch, work, len(inputs)):
            return False  # every shard is brought up to date anew, its timers with it
        self._backlog.measure(self._owned.values())
        for shard, heads in claimed:
            shard.claims = heads
        self._timers.keep(timers, self._owned, now)
        self._send(work.mail)
        # An idle shard goes on with a checkpoint it has begun, but begins none.
        if worth_it or self._round is not None:
            self._checkpoint(batch)
        self._look_back(batch, now)
        return worth_it

    def _fire_due(self, work: Work, now: int) -> list[Timer]:
        """Decide what is due; gives it, what had to wait for the next turn first. Of runs that go on in steps a turn
        does a few, however many there are."""
        timers = self._timers.pop_due(self._owned, now, self._most)
        before = work.events
        waiting: list[Timer] = []
        fired: list[Timer] = []
        for timer in timers:
            if isinstance(timer, ContinueRun) and work.events - before >= STEPS_EVENTS:
                waiting.append(timer)
            else:
                work.handle(timer, "timer")
                fired.append(timer)
        return waiting + fired

    def _claim(self, work: Work, now: int) -> list[tuple[Shard, dict[str, JournalHead]]]:
        """Let the batch also say how far the journals of shards that have grown reach before it."""
        if now < self._claim_at:
            return []
        self._claim_at = now + CLAIM_MS
        grown = [shard for shard in self._owned.values() if shard.outgrew_claims]
        work.appends += [claim_append(shard) for shard in grown]
        return [(shard, dict(shard.heads)) for shard in grown]

    def _look_back(self, batch: Batch, now: int) -> None:
        """Compare the journals with what was written; a shard whose journal differs stands still from here on."""
        faults = self._read_back.look(self._owned, now)
        if not faults:
            return
        stopped = [self._owned.pop(number) for number in faults]
        for number, fault in faults.items():
            self._read_back.end(number)
            self._backlog.drop(number)
            self._quarantine.stop(number, fault, now, read_back=True)
        try:
            # What memory alone knows, should the journal have lost its end.
            self._owner.commit(batch, [claim_append(shard) for shard in stopped])
        except (Fenced, CommitAborted, CommitInDoubt) as error:
            log.warning("the claims of stopped shards were not committed", why=str(error))
            self._owner.reset()

    def _forgive_absence(self, now: int) -> None:
        """After a turn that took as long as leases live (the machine slept, the clock was set forward), nobody was
        heard because nobody listened: everybody gets a full term, as after a takeover."""
        if now - self._turned_at > self._rules.lease_ms // 2:
            for shard in self._owned.values():
                # Never sooner than was granted: the clock may have been set back since.
                shard.grace_until = max(shard.grace_until, now + self._rules.lease_ms)
        self._turned_at = now

    def _wait_s(self, timeout_s: float) -> float:
        if self._round is not None:
            return 0.0
        if self._backlog.reading:
            timeout_s = min(timeout_s, _READING_S)
        due = self._timers.next_due()
        if due is None:
            return timeout_s
        return min(timeout_s, max(0.0, (due - self._clock()) / 1000))

    def _tell_passed_over(self, inputs: int) -> None:
        """Thousands may come again, batch by batch: say it when they begin, and how many they were when they end."""
        if inputs and not self._passed_over:
            log.warning("the group's position came back old: inputs that the journal answers are passed over")
        elif self._passed_over and not inputs:
            log.info("inputs that the journal answers were passed over", inputs=self._passed_over)
        self._passed_over = self._passed_over + inputs if inputs else 0

    def _commit(self, batch: Batch, work: Work, inputs: int) -> bool:
        begun = time.perf_counter()
        try:
            last_offsets = self._owner.commit(batch, work.appends)
        except (Fenced, CommitAborted, CommitInDoubt) as error:
            log.warning("a batch was not committed", outcome=type(error).__name__, why=str(error), events=work.events)
            self._aborts += 1
            self._most = max(1, self._most // 4)
            self._owner.reset()
            return False
        self._most = max(1, self._most // 2) if work.events > BATCH_EVENTS else min(BATCH_RECORDS, self._most * 2)
        self._commit_ms = (time.perf_counter() - begun) * 1000
        self._committed_at = self._clock()
        self._batches += 1
        self._events += work.events
        self._inputs += inputs
        for due, timer in work.adopt(last_offsets):
            self._timers.arm(due, timer)
        return True

    def _follow_ownership(self, batch: Batch) -> None:
        """Let go of shards that went, and bring those that came, or may have been elsewhere in between, up to date."""
        now = self._clock()
        for number in [number for number in self._owned if number not in batch.shards]:
            log.info("shard went to another scheduler", shard=number)
            self._lost[number] = (now, self._owned.pop(number))
            self._backlog.drop(number)
            self._read_back.end(number)
        self._quarantine.keep(batch.shards)
        due = self._quarantine.due(now)
        came = []
        for number, epoch in sorted(batch.shards.items()):
            if number in self._quarantine:
                if number in due:
                    came.append(Shard(number))
            elif number not in self._owned:
                came.append(self._lost[number][1] if number in self._lost else Shard(number))
            elif self._owned[number].epoch != epoch:
                came.append(self._owned[number])
        if came:
            for shard in came:
                self._owned.pop(shard.number, None)
                self._backlog.drop(shard.number)
                self._lost[shard.number] = (now, shard)
            _, faults = bring_each_up_to_date(came, self._log, self._clock)
            for shard in came:
                del self._lost[shard.number]
                if fault := faults.get(shard.number):
                    self._read_back.end(shard.number)
                    self._quarantine.stop(shard.number, fault, self._clock())
                    self._backlog.drop(shard.number)
                    continue
                if shard.number in self._quarantine:
                    self._quarantine.resume(shard.number, self._clock())
                self._take(shard, batch.shards[shard.number])
                self._backlog.take(shard, batch.notes.get(shard.number, ""))
        for number in [number for number, (went, _) in self._lost.items() if now - went > KEEP_LOST_MS]:
            del self._lost[number]

    def _take(self, shard: Shard, epoch: int) -> None:
        shard.epoch = epoch
        shard.writer += 1
        shard.grace_until = self._clock() + self._rules.lease_ms
        self._owned[shard.number] = shard
        self._read_back.begin(shard)
        self._timers.arm_all(shard)
        for state in shard.aggregates.values():
            if isinstance(state, Dag):
                leases = resend_leases(state, self._rules)
                self._send([mail_append(lease, self._log.partitions) for lease in leases])

    def _send(self, mail: Sequence[Append]) -> None:
        for message in mail:
            self._producer.send(message)

    def _checkpoint(self, batch: Batch) -> None:
        """Write the next piece of a checkpoint for a shard that has grown enough; one a turn, so that none takes
        long."""
        if self._round is not None and self._owned.get(self._round.shard.number) is not self._round.shard:
            self._give_up_round()
        if self._round is None:
            grown = (s for s in self._owned.values() if s.events_since_checkpoint >= self._checkpoint_events)
            shard = next(grown, None)
            if shard is None:
                return
            self._round = Round(shard)
        try:
            self._owner.commit(batch, self._round.next_piece())
        except (Fenced, CommitAborted, CommitInDoubt) as error:
            # Later again, not at once: each failure costs every shard a new beginning.
            log.warning("a checkpoint was not committed", shard=self._round.shard.number, why=str(error))
            self._give_up_round()
            self._owner.reset()
            return
        self._round.committed()
        if self._round.finished:
            self._round = None

    def _give_up_round(self) -> None:
        if self._round is not None:
            self._round.give_up()
            self._round = None
