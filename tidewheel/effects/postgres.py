"""Fenced writes in a Postgres of the user's: in the user's own transaction, and nowhere else.

The rules are in ``postgres.sql``, as two functions of the database, so that psql and every other client has them too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from tidewheel.effects.store import CannotFence
from tidewheel.effects.token import StaleAttempt, current_token
from tidewheel.task.context import Attempt

#: An attempt that does nothing within a transaction for so long has its session ended: a newer one may be waiting.
IDLE_S = 60.0
#: How the database says that a newer attempt has claimed.
_STALE = "TW001"

#: A connection with any kind of rows.
Connection: TypeAlias = psycopg.Connection[object]


def effects_sql() -> str:
    """The SQL that prepares a database; also printed by `tidewheel effects-sql`."""
    return Path(__file__).with_name("postgres.sql").read_text(encoding="utf-8")


def install(connection: Connection) -> None:
    """Prepare the connection's database. Harmless if that was done before. Not within a transaction: it commits."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise ValueError("install() commits: call it while no transaction is open on the connection")
    connection.execute(effects_sql().encode())


@contextlib.contextmanager
def fenced(connection: Connection, attempt: Attempt | None = None, *, idle_s: float = IDLE_S) -> Iterator[None]:
    """A transaction in which only the newest attempt of the task writes; ``attempt`` defaults to this code's own.

    It claims, runs the block, and commits; an exception rolls back. Raises ``StaleAttempt`` if a newer attempt has
    claimed, and waits for an older one whose transaction is open; the server ends that one's session when it has done
    nothing for its ``idle_s``. If a transaction is open already the block is part of it, and so is the claim.
    """
    own = current_token() if attempt is None else attempt
    with connection.transaction():
        _ask(connection, own, "SELECT tidewheel_effects.claim(%s, %s, %s, %s, %s)", _milliseconds(idle_s))
        yield


def once(
    connection: Connection,
    effect: str,
    function: Callable[[], object],
    attempt: Attempt | None = None,
    *,
    idle_s: float = IDLE_S,
) -> object:
    """Call ``function`` in a fenced transaction, once for each task and run; gives its result, a JSON value.

    Every later attempt gets the first's result. What ``function`` writes through ``connection`` happens exactly once,
    for it is committed with the mark. What it does elsewhere can happen again if the attempt is lost before the commit.
    """
    own = current_token() if attempt is None else attempt
    key = (own.dag, own.run_id, own.task, effect)
    where = "WHERE (dag, run_id, task, effect) = (%s, %s, %s, %s)"
    with connection.transaction():
        query = "SELECT tidewheel_effects.first_time(%s, %s, %s, %s, %s, %s)"
        if _ask(connection, own, query, effect, _milliseconds(idle_s)):
            result = function()
            connection.execute(f"UPDATE tidewheel_effects.done SET result = %s {where}".encode(), (Jsonb(result), *key))
        with psycopg.Cursor(connection, row_factory=scalar_row) as cursor:
            return cursor.execute(f"SELECT result FROM tidewheel_effects.done {where}".encode(), key).fetchone()


def _milliseconds(seconds: float) -> int:
    if seconds <= 0:
        raise ValueError(f"idle_s must be more than 0, it is {seconds:g}")
    return max(1, round(seconds * 1000))


def _ask(connection: Connection, own: Attempt, query: str, *more: object) -> object:
    """The one value that ``query`` gives for this attempt."""
    try:
        with psycopg.Cursor(connection, row_factory=scalar_row) as cursor:
            parameters = (own.dag, own.run_id, own.task, own.attempt, *more)
            return cursor.execute(query.encode(), parameters).fetchone()
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as error:
        raise CannotFence(
            f"database {connection.info.dbname!r} is not prepared for fenced writes: run "
            "`tidewheel effects-sql | psql …` once, or call tidewheel.effects.postgres.install(connection)"
        ) from error
    except psycopg.Error as error:
        if error.sqlstate != _STALE:
            raise
        raise StaleAttempt(own, int(error.diag.message_detail or 0)) from error
