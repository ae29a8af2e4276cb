"""Python callables in warm processes: a pool of runners, and the executor that lends one to each call."""

from __future__ import annotations

import contextlib
import math
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from tidewheel.core.assignment import ActionSpec, PythonSpec
from tidewheel.task.outcome import Failed, Outcome, Succeeded
from tidewheel.worker.attempt import Attempt, StopReason
from tidewheel.worker.secrets import SecretUnavailable, resolve_all
from tidewheel_services.worker.environment import described, inherited
from tidewheel_services.worker.frames import Frames, frame
from tidewheel_services.worker.messages import (
    CHANNEL_GONE,
    Answer,
    Begun,
    Call,
    Checkpoint,
    Ended,
    Exited,
    Progress,
    SpawnFailed,
    Stale,
)
from tidewheel_services.worker.pump import Pump
from tidewheel_services.worker.shell import signal_name
from tidewheel_services.worker.site import Site
from tidewheel_services.worker.supervision import Lost, Process, Supervisor, close_all, output_pipes, python_argv

#: A runner that nobody used for so long is ended, but for this many that stay warm.
IDLE_S = 60.0
WARM_MIN = 1
#: A call longer than this is guarded by the supervisor too; shorter ones are over before it would hear of them.
GUARD_AFTER_S = 0.1
#: How often a call may meet a runner that ends before it takes the call up.
TRIES = 4
#: A runner whose channel broke should be gone by then.
BROKEN_S = 1.0

_log = structlog.get_logger(__name__)
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


class Runner:
    """One runner process, from the worker's side."""

    def __init__(self, supervisor: Supervisor, project_dir: Path, env: Mapping[str, str]) -> None:
        self.channel, theirs = socket.socketpair()
        self._pipes, writers = output_pipes()
        try:
            self.process: Process = supervisor.spawn(
                python_argv("tidewheel_services.worker.runner_main", str(project_dir)),
                env,
                project_dir,
                (*writers, theirs.fileno()),
            )
        except BaseException:
            self.channel.close()
            close_all(self._pipes)
            raise
        finally:
            theirs.close()
            close_all(writers)
        self.pump = Pump({self._pipes[0]: "stdout", self._pipes[1]: "stderr"}, self.process, (self.channel.fileno(),))
        self.frames = Frames()
        self.idle_since = 0.0

    def alive(self) -> bool:
        """Whether nothing was heard of its end."""
        poll = select.poll()
        poll.register(self.process.fileno(), select.POLLIN | select.POLLHUP)
        return not poll.poll(0)

    def close(self) -> None:
        """End it, now."""
        self.process.close()
        self.channel.close()
        close_all(self._pipes)


class RunnerPool:
    """Idle runners, the warmest on top."""

    def __init__(self, supervisor: Supervisor, project_dir: Path, env: Mapping[str, str]) -> None:
        self._supervisor = supervisor
        self._project_dir = project_dir
        self._env = env
        self._idle: deque[Runner] = deque()
        self._closing = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="tidewheel-runners", daemon=True)
        self._sweeper.start()

    def warm_up(self, count: int = WARM_MIN) -> None:
        """Start runners before they are needed."""
        for _ in range(count):
            self.give(self.fresh())

    def take(self) -> Runner:
        """An idle runner, or a fresh one."""
        while True:
            try:
                runner = self._idle.pop()
            except IndexError:
                return self.fresh()
            if runner.alive():
                return runner
            runner.close()

    def fresh(self) -> Runner:
        """A new runner. Raises ``Lost``."""
        return Runner(self._supervisor, self._project_dir, self._env)

    def give(self, runner: Runner) -> None:
        """Take a runner back that can be used again."""
        runner.idle_since = time.monotonic()
        self._idle.append(runner)
        if self._closing.is_set():
            self._empty(0, math.inf)

    def close(self) -> None:
        """End all that are idle."""
        self._closing.set()
        self._empty(0, math.inf)

    def _sweep(self) -> None:
        while not self._closing.wait(IDLE_S / 4):
            try:
                self._empty(WARM_MIN, time.monotonic() - IDLE_S)
            except Exception:  # whatever it is, the runners that grow cold later are to be ended too
                _log.exception("an idle runner could not be ended")

    def _empty(self, keep: int, unused_since: float) -> None:
        """End the coldest, but for ``keep``."""
        while len(self._idle) > keep:
            try:
                coldest = self._idle.popleft()
            except IndexError:
                return
            if coldest.idle_since > unused_since:
                self._idle.appendleft(coldest)
                return
            coldest.close()


class _Loan:
    """A runner's control while it is lent to an attempt; afterwards it must not be touched through it."""

    def __init__(self, process: Process, grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._over = False
        self._guarded = False
        self._fence_at = math.inf
        self.stopped = False

    def stop(self, reason: StopReason) -> None:
        with self._lock:
            if self._over:
                return
            self.stopped = True
            if reason.gentle:
                self._process.stop(self._grace_s)
            else:
                self._process.kill()

    def extend(self, fence_at: float) -> None:
        with self._lock:
            self._fence_at = fence_at
            if self._guarded and not self._over:
                self._process.extend(fence_at)

    def guard(self) -> None:
        """The call takes long: let the supervisor know its lease."""
        with self._lock:
            self._guarded = True
            self._process.extend(self._fence_at)

    def end(self) -> bool:
        """The call is over. True: the runner may be used again."""
        with self._lock:
            self._over = True
            if self._guarded and not self.stopped:
                self._process.extend(math.inf)
            return not self.stopped


class Runners:
    """The executor of ``python`` actions."""

    killable = True

    def __init__(self, site: Site) -> None:
        self._site = site
        self.pool = RunnerPool(site.supervisor, site.project_dir, inherited(site.environment))

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        """Call the callable in a runner."""
        assert isinstance(action, PythonSpec)
        mail = attempt.assignment
        try:
            own = resolve_all(action.env, self._site.secrets)
        except SecretUnavailable as error:
            return Failed("setup", str(error))
        request = Call(
            action=mail.action,
            env={**own, **described(mail)},
            dag=mail.dag,
            run_id=mail.run_id,
            task=mail.task,
            attempt=mail.attempt,
            logical_date=mail.logical_date,
            interval_start=mail.interval_start,
            interval_end=mail.interval_end,
            checkpoint=mail.checkpoint,
        )
        try:
            # The last try is never with a runner that has grown old in the pool.
            for left in reversed(range(TRIES)):
                outcome = self._lend(self.pool.take() if left else self.pool.fresh(), request, attempt)
                if outcome is not None:
                    return outcome
        except Lost as error:
            return Failed("worker_lost", f"{error}; the call was killed with it")
        return Failed(
            "worker_lost", f"{TRIES} runners in a row ended before they took the call up; see the worker's log"
        )

    def close(self) -> None:
        """End the idle runners."""
        self.pool.close()

    def _lend(self, runner: Runner, request: Call, attempt: Attempt) -> Outcome | None:
        """Let ``runner`` answer the call; None: it did not take it up."""
        loan = _Loan(runner.process, self._site.grace_s)
        ended: Ended | None = None
        try:
            attempt.attach(loan)
            ended, outcome = _converse(runner, request, attempt, loan)
        finally:
            attempt.detach()
            if loan.end() and ended is not None and not ended.retire:
                self.pool.give(runner)
            else:
                runner.close()
        if ended is not None and ended.retire:
            _log.info("a runner is replaced", reason=ended.retire, callable_of=attempt.key)
        return outcome


def _converse(runner: Runner, request: Call, attempt: Attempt, loan: _Loan) -> tuple[Ended | None, Outcome | None]:
    """Hand over the call and hear the runner out; no ``Ended``: it cannot be used again."""
    pump, log, channel = runner.pump, attempt.log, runner.channel
    begun = guarded = broken = False
    # What an earlier call wrote explains nothing here, and may be another team's.
    pump.tail = b""
    guard_at = time.monotonic() + GUARD_AFTER_S
    with contextlib.suppress(OSError):
        channel.sendall(frame(request))
    while True:
        readable = pump.turn(log, None if guarded else GUARD_AFTER_S)
        if not guarded and time.monotonic() > guard_at:
            guarded = True
            loan.guard()
        if channel.fileno() in readable:
            data = _receive(channel)
            if not data:
                # It is dying, or user code closed the channel: then it has to.
                pump.forget(channel.fileno())
                broken = True
                runner.process.stop(BROKEN_S)
            for body in runner.frames.take(data):
                match _decode_answer(body):
                    case Begun():
                        begun = True
                    case Stale():
                        return None, None
                    case Progress(progress=progress):
                        attempt.show(progress)
                    case Checkpoint(checkpoint=checkpoint):
                        attempt.save(checkpoint)
                    case Ended() as ended:
                        if attempt.stopped is not None:
                            # The callable gave in; what it started may not have. Gone is gone only when all is.
                            pump.forget(channel.fileno())
                            runner.process.kill()
                            pump.wait_exit(log)
                        pump.drain(log)
                        return ended, _outcome(ended)
        if runner.process.fileno() in readable:
            word = runner.process.word()
            if word is not None:
                pump.drain(log)
                _last_words(runner, attempt)
                return None, _died(word, begun, broken, pump.last_line(log.masker))


def _last_words(runner: Runner, attempt: Attempt) -> None:
    """What the dead runner had saved, and nobody had heard yet."""
    runner.channel.setblocking(False)
    while data := _receive(runner.channel):
        for body in runner.frames.take(data):
            answer = _decode_answer(body)
            if isinstance(answer, Checkpoint):
                attempt.save(answer.checkpoint)


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(65_536)
    except OSError:
        return b""


def _outcome(ended: Ended) -> Outcome:
    if ended.kind is None:
        return Succeeded(ended.output)
    return Failed(ended.kind, ended.message, ended.exit_code)


def _died(word: Exited | SpawnFailed, begun: bool, broken: bool, last_line: str) -> Outcome | None:
    """The outcome of a call whose runner died; None: it had not taken the call up, so another may."""
    if isinstance(word, SpawnFailed):
        return Failed("setup", f"no Python process could be started: {word.reason}")
    if word.fenced:
        return Failed("worker_lost", "the lease was not renewed in time, so the supervisor killed the call")
    if not begun:
        _log.error("a runner died before it took a call up", status=word.status, said=last_line)
        return None
    said = f": {last_line}" if last_line else ""
    if broken and word.status in (CHANNEL_GONE, -signal.SIGTERM):
        return Failed("exception", "the callable closed files that are not its own, the runner's channel among them")
    if word.status == 0:
        return Failed("exception", f"the callable ended its process without a result (os._exit?){said}")
    if word.status < 0:
        return Failed("signal", f"the callable's process was killed by {signal_name(-word.status)}{said}")
    return Failed("exit_code", f"the callable ended its process with status {word.status}{said}", word.status)
