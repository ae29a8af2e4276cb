"""A scheduler for tests, as small as can be: welcomes workers, acknowledges beats and keeps all that was reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from tidewheel.core.assignment import ActionSpec, PythonSpec, RunSpec, Text
from tidewheel.core.commands import (
    JoinPool,
    ReportCancelled,
    ReportCheckpoint,
    ReportFailure,
    ReportHeartbeat,
    ReportStarted,
    ReportSuccess,
)
from tidewheel.core.mail import AnyMail, AssignTask, LeaseRenewed, StopAttempt, WorkerUnknown, WorkerWelcome
from tidewheel.log.interface import COMMANDS, LOGS, MAIL, TOPICS, Append
from tidewheel.log.memory import MemoryLog
from tidewheel.log.partition import partition_of
from tidewheel.wire import codec
from tidewheel.wire.messages import LogChunk

Ending = ReportSuccess | ReportFailure | ReportCancelled
ENDINGS = (ReportSuccess, ReportFailure, ReportCancelled)
PARTITIONS = 2
T = TypeVar("T")


class Engine:
    """Its ``log`` is the one a worker under test is given. ``silent`` stops every answer, as a cut network does."""

    def __init__(self) -> None:
        self.log = MemoryLog(PARTITIONS)
        self.lease_ms = 30_000
        self.term_ms = 60_000
        self.silent = False
        self.seen: list[tuple[float, object]] = []
        self._number = 0
        self._producer = self.log.producer()
        self._reader = self.log.reader({(COMMANDS, partition): 0 for partition in range(PARTITIONS)})
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._thread.join(5)

    # --- what a scheduler says ----------------------------------------------------------------------------------

    def assign(
        self,
        action: ActionSpec | str,
        task: str = "",
        *,
        attempt: int = 1,
        worker: str = "w1",
        timeout_ms: int | None = None,
        lease_ms: int | None = None,
        run_id: str = "r1",
        checkpoint: str | None = None,
        **more: int,
    ) -> str:
        """Lease an attempt to the worker; gives the task's name."""
        self._number += 1
        task = task or f"t{self._number}"
        text = action if isinstance(action, str) else msgspec.json.encode(action).decode()
        mail = AssignTask(
            receiver=worker,
            partition=self.partition(worker),
            dag="shop",
            run_id=run_id,
            task=task,
            attempt=attempt,
            pool="default",
            action=text,
            lease_ms=lease_ms or self.lease_ms,
            expires_at=0,
            timeout_ms=timeout_ms,
            checkpoint=checkpoint,
            **more,
        )
        self.post(mail)
        return task

    def stop(self, task: str, *, cancel: bool, attempt: int = 1, worker: str = "w1") -> None:
        self.post(
            StopAttempt(
                receiver=worker,
                partition=self.partition(worker),
                dag="shop",
                run_id="r1",
                task=task,
                attempt=attempt,
                cancel=cancel,
            )
        )

    def forget(self, worker: str = "w1") -> None:
        self.post(WorkerUnknown(receiver=worker, partition=self.partition(worker), pool="default"))

    def post(self, mail: AnyMail) -> None:
        self._producer.send(Append(MAIL, mail.receiver.encode(), codec.encode(mail), partition=mail.partition))

    def partition(self, worker: str) -> int:
        return partition_of(worker.encode(), PARTITIONS)

    # --- what it heard ------------------------------------------------------------------------------------------

    def of(self, kind: type[T], task: str | None = None) -> list[T]:
        """All commands of a kind, of one task if it is named."""
        found = [command for _, command in self.seen if isinstance(command, kind)]
        return [command for command in found if task is None or getattr(command, "task", None) == task]

    def instants(self, kind: type[object], task: str | None = None) -> list[float]:
        """When they came."""
        return [
            at
            for at, command in self.seen
            if isinstance(command, kind) and (task is None or getattr(command, "task", None) == task)
        ]

    def await_welcome(self, worker: str) -> None:
        self.wait(lambda: any(join.worker == worker for join in self.of(JoinPool)), f"{worker} joins")

    def ending(self, task: str, limit_s: float = 15.0) -> Ending:
        """The report of the task's end."""
        self.wait(lambda: bool(self.endings(task)), f"the end of {task}", limit_s)
        return self.endings(task)[0]

    def endings(self, task: str) -> list[Ending]:
        return [command for kind in ENDINGS for command in self.of(kind, task)]

    def success(self, task: str) -> object:
        """The output of a task that must have ended well."""
        ending = self.ending(task)
        assert isinstance(ending, ReportSuccess), ending
        return None if ending.output is None else msgspec.json.decode(ending.output)

    def failure(self, task: str, limit_s: float = 15.0) -> ReportFailure:
        ending = self.ending(task, limit_s)
        assert isinstance(ending, ReportFailure), ending
        return ending

    def checkpoints(self, task: str) -> list[object]:
        """What the task has left for its next attempt, in order."""
        return [msgspec.json.decode(command.checkpoint) for command in self.of(ReportCheckpoint, task)]

    def said_before_its_end(self, task: str) -> bool:
        """Whether the last checkpoint came before the report of the end."""
        kinds = [type(command) for _, command in self.seen if getattr(command, "task", None) == task]
        return ReportCheckpoint in kinds and kinds.index(ReportCheckpoint) < max(
            kinds.index(kind) for kind in ENDINGS if kind in kinds
        )

    def chunks(self, task: str) -> list[LogChunk]:
        records = self.log.reader({(LOGS, partition): 0 for partition in range(PARTITIONS)}).read(100_000, 0)
        chunks = [codec.decode(record.value) for record in records if record.value is not None]
        found = [chunk for chunk in chunks if isinstance(chunk, LogChunk) and chunk.task == task]
        return sorted(found, key=lambda chunk: chunk.chunk)

    def text(self, task: str, stream: str = "stdout") -> str:
        return "".join(chunk.text for chunk in self.chunks(task) if chunk.stream == stream)

    def all_bytes(self) -> bytes:
        """Every byte of every topic but the mail, which is not the worker's."""
        places = {(topic, partition): 0 for topic in TOPICS if topic != MAIL for partition in range(PARTITIONS)}
        return b"\n".join(record.value or b"" for record in self.log.reader(places).read(1_000_000, 0))

    def wait(self, condition: Callable[[], bool], what: str, limit_s: float = 10.0) -> None:
        deadline = time.monotonic() + limit_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"not within {limit_s} s: {what}; heard: {[c for _, c in self.seen][-5:]}"
                self._changed.wait(min(left, 0.1))

    def _run(self) -> None:
        while not self._closing:
            for record in self._reader.read(1_000, 0.02):
                assert record.value is not None
                command = codec.decode(record.value)
                if not self.silent:
                    self._answer(command)
                with self._changed:
                    self.seen.append((time.monotonic(), command))
                    self._changed.notify_all()

    def _answer(self, command: object) -> None:
        if isinstance(command, JoinPool):
            self.post(
                WorkerWelcome(
                    receiver=command.worker,
                    partition=command.mail_partition,
                    pool=command.pool,
                    term_ms=self.term_ms,
                )
            )
        elif isinstance(command, ReportStarted | ReportHeartbeat):
            self.post(
                LeaseRenewed(
                    receiver=command.worker,
                    partition=self.partition(command.worker),
                    dag=command.dag,
                    run_id=command.run_id,
                    task=command.task,
                    attempt=command.attempt,
                    beat=command.beat,
                    lease_ms=self.lease_ms,
                )
            )


def run(command: str, **env: str | Text) -> RunSpec:
    """A shell action."""
    return RunSpec(
        command=command, env={name: (value,) if isinstance(value, str) else value for name, value in env.items()}
    )


def python(callable_name: str, **kwargs: object) -> PythonSpec:
    """A Python action."""
    return PythonSpec(callable=callable_name, kwargs=kwargs)
