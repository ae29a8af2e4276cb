"""What the notifier remembers, and what it has to deliver, in Postgres.

What an event comes to is written in one transaction with the position behind it, so no event is told from twice and
none is passed over, whatever ends the process. Texts come here without secrets; URLs of targets never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec

from tidewheel_services.notifier.database import Connection, clean
from tidewheel_services.notifier.telling import Notice, Rules, RunNote, rules_of

#: Versions and outcomes kept in memory before they are read anew.
_KEPT_MAX = 50_000
#: Delivered and dead notices are shown so long.
KEEP_DAYS = 7


class Store:
    """Positions, and what was remembered of versions, runs and outcomes (``telling.Book``).

    What changes is written by ``write``. After any fault throw it away: memory may be ahead of the tables.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._versions: dict[tuple[str, str], Rules | None] = {}
        self._outcomes: dict[str, str] = {}
        self._runs: dict[tuple[str, str], RunNote] = {
            (dag, run_id): msgspec.json.decode(note, type=RunNote)
            for dag, run_id, note in connection.execute("SELECT dag, run_id, note FROM tidewheel_notifier.runs")
        }
        self._new_versions: dict[tuple[str, str], Rules | None] = {}
        self._new_outcomes: dict[str, str] = {}
        self._changed: set[tuple[str, str]] = set()
        self._gone: set[tuple[str, str]] = set()
        #: Tables of the read model that have been seen.
        self._there: set[str] = set()

    # --- the book ------------------------------------------------------------------------------------------------

    def deploy(self, dag: str, version: str, rules: Rules | None) -> None:
        """A version and what it wants told."""
        self._versions[dag, version] = self._new_versions[dag, version] = rules

    def rules(self, dag: str, version: str) -> Rules | None:
        """What the version wants told; one from before the notifier's first start is looked up in the read model."""
        key = (dag, version)
        if key not in self._versions:
            row = self._connection.execute(
                "SELECT rules FROM tidewheel_notifier.versions WHERE dag = %s AND version = %s", key
            ).fetchone()
            if row is None:
                query = "SELECT definition::text FROM tidewheel.dag_versions WHERE dag = %s AND version = %s"
                definition = self._of_read_model("dag_versions", query, key)
                if definition is None:
                    return None  # not kept: the projector may be behind
                self._versions[key] = rules_of(definition)
            else:
                self._versions[key] = msgspec.json.decode(row[0], type=Rules) if row[0] else None
        return self._versions[key]

    def begin(self, dag: str, run_id: str, note: RunNote) -> None:
        """Remember a run."""
        self._runs[dag, run_id] = note
        self.changed(dag, run_id)

    def run(self, dag: str, run_id: str) -> RunNote | None:
        """What is remembered of it; a run from before the first start is looked up in the read model."""
        note = self._runs.get((dag, run_id))
        if note is None:
            key = (dag, run_id)
            query = "SELECT version FROM tidewheel.runs WHERE dag = %s AND run_id = %s"
            version = self._of_read_model("runs", query, key)
            if version is not None and self.rules(dag, version) is not None:
                note = self._runs[key] = RunNote(version=version)
        return note

    def changed(self, dag: str, run_id: str) -> None:
        """Write what is remembered of the run."""
        self._changed.add((dag, run_id))
        self._gone.discard((dag, run_id))

    def forget(self, dag: str, run_id: str) -> None:
        """The run has ended."""
        self._runs.pop((dag, run_id), None)
        self._changed.discard((dag, run_id))
        self._gone.add((dag, run_id))

    def outcome(self, dag: str, before: int) -> str:
        """How the run of the DAG ended that ended last before this instant (ms since the epoch)."""
        if dag not in self._outcomes:
            row = self._connection.execute(
                "SELECT state FROM tidewheel_notifier.outcomes WHERE dag = %s", (dag,)
            ).fetchone()
            query = (
                "SELECT state FROM tidewheel.runs WHERE dag = %s AND state IN ('success', 'failed')"
                " AND ended_at < to_timestamp(%s / 1000.0::float8) ORDER BY ended_at DESC LIMIT 1"
            )
            found = self._of_read_model("runs", query, (dag, before)) if row is None else row[0]
            self._outcomes[dag] = found or ""
        return self._outcomes[dag]

    def end(self, dag: str, state: str) -> None:
        """A run of the DAG ended so."""
        self._outcomes[dag] = self._new_outcomes[dag] = state

    def _of_read_model(self, table: str, query: str, parameters: Sequence[object]) -> str | None:
        """The first value, if there is a read model and a row in it."""
        if table not in self._there:
            there = self._connection.execute("SELECT to_regclass(%s)", (f"tidewheel.{table}",)).fetchone()
            if there is None or there[0] is None:
                return None
            self._there.add(table)
        row = self._connection.execute(query.encode(), parameters).fetchone()
        return None if row is None else str(row[0])

    # --- writing -------------------------------------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[object]:
        """All or nothing of what is written within."""
        return self._connection.transaction()

    def positions(self) -> dict[int, int]:
        """The next offset of each partition that was ever followed."""
        return dict(self._connection.execute("SELECT partition, next_offset FROM tidewheel_notifier.positions"))

    def write(self, notices: Iterable[tuple[Notice, int, int]], positions: Mapping[int, int]) -> None:
        """Write what changed, the new notices (each with its event's partition and offset), and the positions."""
        many = self._connection.cursor().executemany
        if self._new_versions:
            many(
                "INSERT INTO tidewheel_notifier.versions (dag, version, rules) VALUES (%s, %s, %s)"
                " ON CONFLICT (dag, version) DO UPDATE SET rules = excluded.rules",
                [(*key, "" if rules is None else _json(rules)) for key, rules in sorted(self._new_versions.items())],
            )
        if self._gone:
            many("DELETE FROM tidewheel_notifier.runs WHERE dag = %s AND run_id = %s", sorted(self._gone))
        if self._changed:
            many(
                "INSERT INTO tidewheel_notifier.runs (dag, run_id, note) VALUES (%s, %s, %s)"
                " ON CONFLICT (dag, run_id) DO UPDATE SET note = excluded.note",
                [(*key, _json(self._runs[key])) for key in sorted(self._changed)],
            )
        if self._new_outcomes:
            many(
                "INSERT INTO tidewheel_notifier.outcomes (dag, state) VALUES (%s, %s)"
                " ON CONFLICT (dag) DO UPDATE SET state = excluded.state",
                sorted(self._new_outcomes.items()),
            )
        rows = [_row(*one) for one in notices]
        if rows:
            many(
                "INSERT INTO tidewheel_notifier.outbox (notification, target, event, kind, dag, run_id, title, body,"
                " partition, log_offset) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (notification, target) DO NOTHING",
                rows,
            )
        many(
            "INSERT INTO tidewheel_notifier.positions (partition, next_offset) VALUES (%s, %s)"
            " ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset",
            sorted(positions.items()),
        )

    def written(self) -> None:
        """It is committed: clear the marks, and let memory not grow."""
        self._new_versions.clear()
        self._new_outcomes.clear()
        self._changed.clear()
        self._gone.clear()
        for kept in (self._versions, self._outcomes):
            if len(kept) > _KEPT_MAX:
                kept.clear()

    def clean(self) -> None:
        """Drop what ended long ago."""
        self._connection.execute(
            "DELETE FROM tidewheel_notifier.outbox WHERE state <> 'waiting' AND ended_at < now() - %s::interval",
            (f"{KEEP_DAYS} days",),
        )

    def waiting(self) -> dict[str, int]:
        """How many notices wait for each target."""
        query = "SELECT target, count(*) FROM tidewheel_notifier.outbox WHERE state = 'waiting' GROUP BY target"
        return dict(self._connection.execute(query))


def _row(notice: Notice, partition: int, offset: int) -> tuple[object, ...]:
    told = notice.told
    texts = (notice.event, told.kind, notice.dag, notice.run_id, clean(told.title), clean(told.body))
    return (notice.id, notice.target, *texts, partition, offset)


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
