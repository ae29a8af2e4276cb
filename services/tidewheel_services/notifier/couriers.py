"""Delivery: a thread for each target, so that one which hangs or is gone keeps nobody else waiting.

A notice that fails is tried again with growing pauses, others of the same target in between; after the last try it goes
to the dead letters. Sending comes before writing that it was sent, so a notice may come twice if the process dies in
between, and never not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol
from urllib.parse import quote

import psycopg
import structlog

from tidewheel.log.interface import LogError
from tidewheel_services.notifier.database import connect
from tidewheel_services.notifier.dead_letters import DeadLetters
from tidewheel_services.notifier.outbox import Outbox, Waiting
from tidewheel_services.notifier.wording import Kind

#: Pauses after the first failed try, the second and so on; the last try comes almost an hour after the first.
PAUSES_S = (5.0, 15.0, 45.0, 120.0, 300.0, 900.0, 1_800.0)
#: How often a courier looks for what is due when nobody wakes it.
LOOK_S = 1.0
#: Before it goes on when Postgres or the log is away.
AWAY_S = 2.0

_log = structlog.get_logger("tidewheel.notifier")


class Sender(Protocol):
    """Delivers to one target; gives why it failed, or nothing."""

    def send(self, title: str, body: str, kind: Kind) -> str: ...


class Counts:
    """What a courier has done since the start, for whoever watches."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.dead = 0


class Courier:
    """Delivers to one target until stopped. With no ``sender`` it gives every notice up, for ``fault``."""

    def __init__(
        self,
        dsn: str,
        claim: Callable[[Outbox], Waiting | None],
        sender: Sender | None,
        letters: DeadLetters,
        *,
        life: str,
        fault: Callable[[str], str],
        link: Callable[[Waiting], str],
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        self._dsn = dsn
        self._life = life
        self._claim = claim
        self._sender = sender
        self._letters = letters
        self._fault = fault
        self._link = link
        self._pauses_s = pauses_s
        self._wake = threading.Event()
        self.counts = Counts()

    def wake(self) -> None:
        """There may be something to deliver."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Deliver until ``stop``; a database that is away is waited for."""
        while not stop.is_set():
            try:
                with connect(self._dsn) as connection:
                    self._deliver(Outbox(connection, self._life), stop)
            except psycopg.OperationalError as error:
                # The notifier itself says that Postgres is away.
                _log.debug("the outbox cannot be reached", why=str(error).strip())
                stop.wait(AWAY_S)
            except Exception as error:  # whatever it is, the target's other notices are to be delivered all the same
                _log.exception("a courier failed; it begins again", why=repr(error))
                stop.wait(AWAY_S)

    def _deliver(self, outbox: Outbox, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            notice = self._claim(outbox)
            if notice is None:
                self._wake.wait(LOOK_S)
            elif self._sender is None:
                self._give_up(outbox, notice, self._fault(notice.target))
            else:
                self._try(outbox, self._sender, notice)

    def _try(self, outbox: Outbox, sender: Sender, notice: Waiting) -> None:
        reason = sender.send(notice.title, f"{notice.body}{self._link(notice)}", notice.kind)
        if not reason:
            outbox.sent(notice)
            self.counts.sent += 1
            return
        self.counts.failed += 1
        about = {"notification": notice.notification, "target": notice.target, "tries": notice.tries, "why": reason}
        if notice.tries > len(self._pauses_s):
            _log.error("a notification is given up", **about)
            self._give_up(outbox, notice, f"target '{notice.target}' failed {notice.tries} times, at last: {reason}")
            return
        pause = self._pauses_s[notice.tries - 1]
        _log.warning("a notification could not be delivered", **about, again_in_s=pause)
        outbox.again(notice, reason, pause)

    def _give_up(self, outbox: Outbox, notice: Waiting, reason: str) -> None:
        try:
            self._letters.write(notice, reason)
        except LogError as error:
            _log.warning("a dead letter could not be written; trying again", why=str(error))
            outbox.again(notice, reason, AWAY_S)
            return
        outbox.dead(notice, reason)
        self.counts.dead += 1


def link_to(base: str) -> Callable[[Waiting], str]:
    """What stands below each notice: where to look, if ``base`` says where the API is seen, and the notice's id."""

    def link(notice: Waiting) -> str:
        where = f"{base.rstrip('/')}/api/v1/dags/{quote(notice.dag, safe='')}/runs/{quote(notice.run_id, safe='')}"
        return f"\n\n{where + chr(10) if base else ''}Notification {notice.notification}"

    return link


def unknown(configured: Iterable[str]) -> Callable[[str], str]:
    """Why a notice for a target that nobody configured is given up."""
    known = ", ".join(configured) or "none"

    def fault(target: str) -> str:
        return (
            f"no target '{target}' is configured at the notifier (known: {known}): "
            f"set TIDEWHEEL_NOTIFY_{target.upper()} and start it again"
        )

    return fault


def unusable(faults: Mapping[str, str]) -> Callable[[str], str]:
    """Why a notice for a target with a useless URL is given up."""
    return lambda target: faults[target]
