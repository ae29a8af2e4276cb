"""Following what tasks wait for without a worker: each wait ends by what was really said or really happened, and in
calm weather none outlasts what it waits for.

It knows the promise, not the engine: whose word ends which wait, that a run's end is told to whoever waits for it, and
that a run which nobody wants any more is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.log.interface import COMMANDS, Record
from tidewheel.runtime.shard import shard_of
from tidewheel.testing.simulation.decoding import message_in
from tidewheel.testing.simulation.expressions import LARGE
from tidewheel.testing.simulation.triggers import is_large
from tidewheel.wire.faults import DecodeError

if TYPE_CHECKING:
    from tidewheel.testing.simulation.world import TroubledWorld
    from tidewheel.testing.world import AttemptPlace

#: In calm, whatever is due is done after so long.
PATIENCE_MS: Final = 5_000
#: A service answers within this, the waiter's turns included.
_ANSWER_MS: Final = 30_000
#: Commands of a partition among which one that was just sent is looked for.
_LOOKED_AT: Final = 200
RunName: TypeAlias = tuple[str, str]

_RUN_ENDS: dict[type[e.Event], str] = {e.RunSucceeded: "success", e.RunFailed: "failed", e.RunCancelled: "cancelled"}


class _Wait:
    """An attempt that waits: how that began, and by the world's clock when anything about it last changed."""

    __slots__ = ("asks_at", "begun", "ending", "other", "skew_ms", "touched")

    def __init__(self, begun: e.TaskDeferred, now: int) -> None:
        self.begun = begun
        self.touched = now
        #: How far the clock was off by which it says since when records count.
        self.skew_ms = abs(begun.at - now)
        self.asks_at: int | None = None
        #: It was told to end once its run has.
        self.ending = False
        detail: dict[str, Any] = msgspec.json.decode(begun.detail)
        #: The run that it asked for, or whose end it waits for.
        self.other: RunName | None = (detail["dag"], detail["run_id"]) if "run_id" in detail else None


class _Run:
    """A run: how it ended each time, when (by the world's clock) anything last happened to it, and whether it lives."""

    __slots__ = ("ends", "live", "stopping", "touched", "unwanted")

    def __init__(self) -> None:
        self.live = False
        self.ends: set[str] = set()
        self.touched = 0
        #: It was told to end, and: whoever asked for it wants it to.
        self.stopping = self.unwanted = False


class Said:
    """What was said of waits, rightly or not: who says nothing ends nothing."""

    def __init__(self) -> None:
        self._said: set[tuple[AttemptPlace, str | None]] = set()

    def note(self, command: c.Command) -> None:
        """Somebody says this."""
        if isinstance(command, c.DecideApproval):
            word = "yes" if command.approve else "no"
            self._said.add(((command.dag, command.run_id, command.task, command.attempt), word))
        elif isinstance(command, c.ReportWait):
            word = "fault" if command.fault else "came"
            key = (command.dag, command.run_id, command.task, command.attempt)
            self._said |= {(key, word), (key, f"output {command.output}")}

    def of(self, key: AttemptPlace, *words: str) -> bool:
        """Whether one of these words was said of the attempt; a person may leave open which one is meant."""
        return any((place, word) in self._said for word in words for place in (key, (*key[:3], 0)))


class OpenWaits:
    """Reads every event of a DAG, in any order of DAGs."""

    def __init__(self, world: TroubledWorld) -> None:
        self._world = world
        self._open: dict[AttemptPlace, _Wait] = {}
        #: The attempt of each task that waits.
        self._attempts: dict[tuple[str, str, str], int] = {}
        #: How each wait began that a waiter looks after, also of those that are over.
        self._watched: dict[AttemptPlace, _Wait] = {}
        self._runs: dict[RunName, _Run] = {}
        #: Ends of waits to be judged once all that was written with them has been read.
        self._ended: list[tuple[AttemptPlace, _Wait, e.TaskEvent]] = []
        #: Runs that somebody was just found not to want, and who was just to be told of a run's end.
        self._unwanted: list[RunName] = []
        self._to_tell: list[AttemptPlace] = []
        self._watchers: dict[RunName, list[AttemptPlace]] = {}

    def apply(self, event: e.Event) -> None:
        """Judge the next event, and go on from it."""
        match event:
            case e.TaskDeferred():
                key = (event.dag, event.run_id, event.task, event.attempt)
                self._open[key] = _Wait(event, self._world.now)
                self._attempts[key[:3]] = event.attempt
                if event.waits_for in ("http", "kafka"):
                    self._watched[key] = self._open[key]
            case e.LaunchPostponed():
                wait = self._open.get((event.dag, event.run_id, event.task, event.attempt))
                if wait is not None:
                    wait.asks_at, wait.touched = event.ask_at, self._world.now
            case e.TasksCleared():
                for name in msgspec.json.decode(event.tasks, type=list[str]):
                    self._close(event, name)
                for name in msgspec.json.decode(event.ending, type=list[str]):
                    self._stop(event, name)
            case e.TaskCancelRequested():
                self._stop(event, event.task)
            case e.TaskMarked() if event.ending:
                self._stop(event, event.task)
            case e.TaskSucceeded() | e.TaskFailed() | e.TaskSkipped() | e.TaskCancelled() | e.TaskMarked():
                self._end(event)
            case e.RunEvent():
                self._run(event)

    def judge(self) -> None:
        """Judge what ended in what was just read; who ended it may stand in another partition of the same commit."""
        for key, wait, event in self._ended:
            if isinstance(event, e.TaskSucceeded) and not self._may_go_on(key, wait, event.output):
                self._world.violate(f"{_named(key)} goes on by {event.output}, which nobody said and nothing gave")
            if isinstance(event, e.TaskFailed) and not self._may_fail(key, wait, event.kind):
                self._world.violate(f"{_named(key)} fails ({event.kind}: {event.message}), which nobody said")
        for name in self._unwanted:
            run = self._runs[name]
            if run.live and not run.stopping and not self._on_its_way(c.RecallRun, name[0], run_id=name[1]):
                self._world.violate(f"run {'/'.join(name)} is wanted no more, and nobody tells it")
        for key in self._to_tell:
            _, run_id, task, attempt = key
            said = {"run_id": run_id, "task": task, "attempt": attempt}
            if key in self._open and not self._on_its_way(c.ReportWait, key[0], **said):
                self._world.violate(f"{_named(key)} waits for a run that has just ended, and is not told")
        for judged in (self._ended, self._unwanted, self._to_tell):
            judged.clear()

    def _on_its_way(self, kind: type[c.Command], dag: str, **said: object) -> bool:
        """Whether such a command is among the last that lie on its topic."""
        records = self._world.log.records_of(COMMANDS, shard_of(dag, self._world.log.partitions))
        for record in records[-_LOOKED_AT:]:
            with suppress(DecodeError):
                message = None if record is None or record.value is None else message_in(record.value)
                if isinstance(message, kind) and all(getattr(message, name) == said[name] for name in said):
                    return True
        return False

    # --- how waits end -------------------------------------------------------------------------------------------

    def _end(self, event: e.TaskEvent) -> None:
        wait = self._close(event, event.task)
        if wait is None:
            return
        self._ended.append(((event.dag, event.run_id, event.task, event.attempt), wait, event))
        if isinstance(event, e.TaskFailed) and event.kind == "timeout":
            self._want_no_more(wait)

    def _may_go_on(self, key: AttemptPlace, wait: _Wait, output: str | None) -> bool:
        match wait.begun.waits_for:
            case "approval":
                return self._world.said.of(key, "yes")
            case "http" | "kafka":
                return self._world.said.of(key, f"output {output}")
            case "run" | "workflow":
                other = None if wait.other is None else self._runs.get(wait.other)
                if other is None:
                    return False
                wanted = msgspec.json.decode(wait.begun.detail).get("states", ("success",))
                return not other.ends.isdisjoint(wanted)
            case "trigger":
                return wait.other in self._runs
        return True

    def _may_fail(self, key: AttemptPlace, wait: _Wait, kind: str) -> bool:
        if kind == "rejected":
            return self._world.said.of(key, "no")
        if kind == "wait_failed" and wait.begun.waits_for in ("http", "kafka"):
            return self._world.said.of(key, "fault")
        return True

    def _close(self, event: e.RunEvent, name: str) -> _Wait | None:
        """The task waits no more, and no instance of it."""
        attempt = self._attempts.pop((event.dag, event.run_id, name), None)
        return None if attempt is None else self._open.pop((event.dag, event.run_id, name, attempt))

    def _stop(self, event: e.RunEvent, name: str) -> None:
        """It is to wait no more, once the run that it waits for has ended."""
        attempt = self._attempts.get((event.dag, event.run_id, name))
        if attempt is not None:
            wait = self._open[event.dag, event.run_id, name, attempt]
            wait.ending = True
            self._want_no_more(wait)

    # --- runs ----------------------------------------------------------------------------------------------------

    def _run(self, event: e.RunEvent) -> None:
        if isinstance(event, e.TaskEvent):
            return
        run = self._runs.setdefault((event.dag, event.run_id), _Run())
        match event:
            case e.RunCreated():
                run.live = True
            case e.RunRestarted() | e.RunReopened():
                run.live, run.stopping, run.unwanted = True, False, False
            case e.RunCancelRequested():
                run.stopping = True
            case e.DeadlineMissed() if event.action == "fail":
                run.stopping = True
            case e.RunSucceeded() | e.RunFailed() | e.RunCancelled():
                run.live = False
                run.ends.add(_RUN_ENDS[type(event)])
                self._to_tell += self._watchers.pop((event.dag, event.run_id), ())
            case e.RunWatched():
                watcher = (event.watcher_dag, event.watcher_run_id, event.watcher_task, event.watcher_attempt)
                self._watchers.setdefault((event.dag, event.run_id), []).append(watcher)
                return
            case _:
                return
        run.touched = self._world.now

    def _want_no_more(self, wait: _Wait) -> None:
        if wait.other is not None and wait.begun.waits_for == "workflow":
            run = self._runs.setdefault(wait.other, _Run())
            run.unwanted = not run.ends
            run.touched = self._world.now
            self._unwanted.append(wait.other)

    # --- what a waiter says ---------------------------------------------------------------------------------------

    def judge_report(self, report: c.ReportWait) -> None:
        """A waiter says this: it is true."""
        key = (report.dag, report.run_id, report.task, report.attempt)
        wait = self._watched.get(key)
        if wait is None:
            self._world.violate(f"a waiter speaks of {_named(key)}, which never waited for anything outside")
        elif not self._is_true(wait, report):
            said = report.fault or report.output
            self._world.violate(f"a waiter says '{said}' to {_named(key)}, which waits for nothing that said so")

    def _is_true(self, wait: _Wait, report: c.ReportWait) -> bool:
        begun = wait.begun
        detail: dict[str, Any] = msgspec.json.decode(begun.detail)
        services, output = self._world.services, report.output or ""
        if begun.waits_for == "http":
            url = detail["request"]["url"]
            return url in services.gone if report.fault else (url, output) in services.said
        if report.fault:
            return False
        said = msgspec.json.decode(output)
        place = (said["topic"], said["partition"], said["offset"])
        return any((one.topic, one.partition, one.offset) == place for one in self._that_came(detail, -wait.skew_ms))

    def _that_came(self, detail: dict[str, Any], slack_ms: int) -> Iterator[Record]:
        """The records that a wait with this detail waits for, if it began so much later."""
        assert detail.get("match") in (None, LARGE), detail
        for record in self._world.feed.records_of(detail["topic"]):
            if record.timestamp >= detail["since_ms"] + slack_ms and (detail.get("match") is None or is_large(record)):
                yield record

    # --- in calm weather -----------------------------------------------------------------------------------------

    def overdue(self) -> Iterator[str]:
        """What should have gone on by now, if nothing has been wrong for a while."""
        now = self._world.now
        for key, wait in self._open.items():
            why = self._outlasts(wait, now)
            if why:
                yield f"{_named(key)} waits for a {wait.begun.waits_for}, {why}"
        for name, run in self._runs.items():
            if run.live and run.unwanted and not run.stopping and now - run.touched > PATIENCE_MS:
                yield f"run {'/'.join(name)} goes on, and the task that asked for it wants it no more"

    def _is_ready(self, wait: _Wait, now: int) -> bool:
        """Whether the service that is asked has been up, in calm, for long enough to be asked again and to answer."""
        if wait.begun.waits_for != "http" or not self._world.waited_on:
            return False
        detail: dict[str, Any] = msgspec.json.decode(wait.begun.detail)
        patience_ms: int = detail["every_ms"] + _ANSWER_MS
        calm_ms = now - max(wait.touched, self._world.calm_at)
        return min(calm_ms, self._world.services.up_for_ms(detail["request"]["url"])) > patience_ms

    def _that_came_to(self, wait: _Wait) -> Iterator[Record]:
        if wait.begun.waits_for != "kafka" or not self._world.waited_on:
            return iter(())
        return self._that_came(msgspec.json.decode(wait.begun.detail), wait.skew_ms)

    def _outlasts(self, wait: _Wait, now: int) -> str:
        instants = [] if wait.ending else [wait.begun.resume_at, wait.begun.timeout_at, wait.asks_at]
        late = [now - at for at in instants if at is not None and now - at > PATIENCE_MS]
        if self._is_ready(wait, now):
            return "which has been up all the time that it takes to ask, and to hear the answer"
        came = next(self._that_came_to(wait), None)
        if came is not None and now - max(wait.touched, came.timestamp) > PATIENCE_MS:
            return f"and {came.topic}/{came.partition}/{came.offset} came {now - came.timestamp} ms ago"
        if late:
            return f"should have done something {max(late)} ms ago, and nothing has woken for it"
        if wait.other is None or wait.begun.waits_for not in ("run", "trigger", "workflow"):
            return ""
        run = self._runs.get(wait.other)
        quiet = now - max(wait.touched, 0 if run is None else run.touched)
        if quiet <= PATIENCE_MS or wait.asks_at is not None:
            return ""
        there = run is not None and (run.live or bool(run.ends))
        if wait.begun.waits_for != "run" and not there:
            return f"{'/'.join(wait.other)}, which nobody has made"
        if there and (wait.begun.waits_for == "trigger" or not (run is not None and run.live)):
            return f"{'/'.join(wait.other)}, and has not heard that it is {'there' if run and run.live else 'over'}"
        return ""


def _named(key: AttemptPlace) -> str:
    dag, run_id, task, attempt = key
    return f"{dag}/{run_id}/{task} attempt {attempt}"
