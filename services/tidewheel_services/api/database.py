"""Reads from the read model: a few read-only connections, and its absence told as what it is.

``psycopg_pool`` was tried first. While a server is down it makes every request wait out the time-out and then cannot
say why; here a refused connection is an answer at once, with libpq's reason, and the first request after the server
is back simply connects.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from tidewheel_projections.reads import BadCursor
from tidewheel_services.api.problems import Problem

CONNECTIONS_MAX = 8
#: A query over its bound is a mistake of ours; it must not hold a connection for long.
STATEMENT_MS_MAX = 10_000
#: A server that stands still enforces no bound of its own, so silence has one here.
SILENCE_S_MAX = 11.0
#: How long a request waits for a connection to be free, and for a server to answer.
WAIT_S = 2
RETRY_AFTER_S = 2
_NO_TABLES = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)

Row = TypeVar("Row")
ReadConnection = psycopg.Connection[TupleRow]


class Silent(psycopg.OperationalError):
    """The server takes connections and does not answer: it is stopped, or its machine is."""


class _Bounded(ReadConnection):
    """A connection on which nothing is waited for longer than ``SILENCE_S_MAX``; then it is closed."""

    def wait(self, gen: Generator[Any, Any, Row], *arguments: Any, **more: Any) -> Row:
        """Wait as the base does, for so long."""
        try:
            return super().wait(_until(gen, time.monotonic() + SILENCE_S_MAX), *arguments, **more)
        except Silent:
            self.close()
            raise


def _until(gen: Generator[Any, Any, Row], deadline: float) -> Generator[Any, Any, Row]:
    """``gen``, which psycopg resumes at least ten times a second, until the deadline."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                gen.close()
                raise Silent(f"no answer within {SILENCE_S_MAX:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        answer: Row = end.value
        return answer


class ReadModel:
    """Runs read functions on read-only connections, made when needed and kept; safe to use from many threads."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._idle: deque[ReadConnection] = deque()
        self._closed = False

    def close(self) -> None:
        """Let every connection go; those in use when they come back."""
        self._closed = True
        self._drop_idle()

    def read(self, query: Callable[[ReadConnection], Row]) -> Row:
        """What ``query`` gives. Raises ``Problem`` when the read model cannot answer, or the query is one it refuses.

        Tried again once, on a new connection: a kept one may have died with a restarted server.
        """
        if not self._free.acquire(timeout=WAIT_S):
            detail = f"all {CONNECTIONS_MAX} connections to Postgres are busy; ask again"
            raise Problem("read_model_unavailable", detail, retry_after_s=RETRY_AFTER_S)
        try:
            try:
                return self._once(query)
            except (psycopg.errors.QueryCanceled, Silent):
                raise
            except psycopg.OperationalError:
                self._drop_idle()
                return self._once(query)
        except psycopg.OperationalError as error:
            detail = f"Postgres did not answer ({_reason(error)}); writes still work, reads will once it is back"
            raise Problem("read_model_unavailable", detail, retry_after_s=RETRY_AFTER_S) from error
        finally:
            self._free.release()

    def _once(self, query: Callable[[ReadConnection], Row]) -> Row:
        connection = self._connection()
        try:
            return query(connection)
        except BadCursor as error:
            raise _invalid("query.after", "after", str(error)) from error
        except psycopg.DataError as error:
            raise _invalid("request", "value", f"a value is not one that can be looked up: {_reason(error)}") from error
        except _NO_TABLES as error:
            detail = "the database has no Tidewheel tables of this version yet; start the projector, which makes them"
            raise Problem("read_model_unavailable", detail, retry_after_s=RETRY_AFTER_S) from error
        finally:
            if self._closed or connection.broken:
                connection.close()
            else:
                self._idle.append(connection)

    def _connection(self) -> ReadConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return _Bounded.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=WAIT_S,
                application_name="tidewheel-api",
                options=f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_MS_MAX}",
            )

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _invalid(where: str, code: str, message: str) -> Problem:
    return Problem("invalid", message, errors=[{"where": where, "code": code, "message": message}])


def _reason(error: Exception) -> str:
    # libpq's own text, which names host and port but no password; its first line is enough.
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
