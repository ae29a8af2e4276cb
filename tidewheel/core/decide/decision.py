"""A decision in the making: what one command comes to."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

from tidewheel.core.attempt import AttemptFields
from tidewheel.core.commands import Command, FailureKind, Request
from tidewheel.core.events import Event, TaskFailed
from tidewheel.core.fold import fold
from tidewheel.core.mail import AnyMail
from tidewheel.core.rules import Rules
from tidewheel.core.state import Aggregate, Dag

A = TypeVar("A", bound=Aggregate)

RefusalCode = Literal["not_found", "conflict", "invalid", "stale", "overloaded", "not_kept"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the asker is told. A refusal is an answer with a reason, not an exception."""

    ok: bool
    message: str = ""
    code: str = ""
    run_id: str = ""
    backfill_id: str = ""
    created: bool = False
    #: More of it for programs, as JSON.
    details: str = ""


class Decision(Generic[A]):
    """Collects events, commands for other aggregates and mail; folds each event at once, so that what follows sees
    its effect.

    The state it was made from stays as it was. The order of commands matters: what joins a queue stands before what
    frees slots.
    """

    __slots__ = ("answer", "commands", "events", "left", "mail", "now", "rules", "state", "unfinished")

    def __init__(self, state: A, now: int, rules: Rules) -> None:
        self.state = state
        self.now = now
        self.rules = rules
        #: How many tasks it may still begin or end of itself; the rest of a run goes on in steps (``core.steps``).
        self.left = rules.step
        #: Runs of which it leaves something for that.
        self.unfinished: dict[str, None] = {}
        self.events: list[Event] = []
        self.commands: list[Command] = []
        self.mail: list[AnyMail] = []
        self.answer: Answer | None = None

    def record(self, event: Event) -> None:
        """It is a fact, once the batch commits."""
        self.state = fold(self.state, event)
        self.events.append(event)

    def may_go_on(self, run_id: str) -> bool:
        """Whether it may begin or end one more task of the run; if not, the run goes on in steps."""
        if self.left <= 0:
            self.leave(run_id)
        return self.left > 0

    def leave(self, run_id: str) -> None:
        """What is left of the run is for the next step."""
        self.unfinished[run_id] = None

    def ask(self, command: Command) -> None:
        """Ask another aggregate."""
        self.commands.append(command)

    def post(self, mail: AnyMail) -> None:
        """Tell a worker, after the commit."""
        self.mail.append(mail)

    def accept(
        self,
        message: str = "",
        *,
        run_id: str = "",
        backfill_id: str = "",
        created: bool = True,
        details: str = "",
    ) -> None:
        """Answer yes; ``created`` False if it was so already."""
        self.answer = Answer(
            ok=True, message=message, run_id=run_id, backfill_id=backfill_id, created=created, details=details
        )

    def refuse(self, code: RefusalCode, message: str) -> None:
        """Answer no, saying what was expected and what is true."""
        self.answer = Answer(ok=False, code=code, message=message)


def expects_reply(command: Command) -> bool:
    """Whether somebody waits for the answer."""
    return isinstance(command, Request) and bool(command.request_id)


def last_attempt(d: Decision[Dag], run_id: str, name: str) -> AttemptFields:
    """The current or last attempt of a task of a live run, to say something of it; number 0 if there was none."""
    attempt = d.state.runs[run_id].task(name).attempt
    return {"dag": d.state.dag, "run_id": run_id, "task": name, "attempt": attempt}


def failed_here(
    d: Decision[Dag],
    run_id: str,
    name: str,
    kind: FailureKind,
    message: str,
    *,
    started_at: int | None = None,
    retry_at: int | None = None,
    actor: str = "scheduler",
) -> TaskFailed:
    """The failure of a task that no worker reports: the engine itself finds that it cannot go on."""
    return TaskFailed(
        **last_attempt(d, run_id, name),
        at=d.now,
        actor=actor,
        worker="",
        started_at=started_at,
        ended_at=d.now,
        kind=kind,
        message=message,
        retry_at=retry_at,
    )
