"""The command that prepares a user's own database for fenced writes: effects-sql."""

from __future__ import annotations

from tidewheel_services.cli.output import write


def effects_sql() -> None:
    """Print the SQL that prepares a database of yours for tasks' fenced writes: pipe it into psql."""
    from tidewheel.effects.postgres import effects_sql as text

    write(text().rstrip())
