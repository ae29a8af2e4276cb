"""The notifier's connections and its tables."""

from __future__ import annotations

from importlib import resources
from typing import Any, TypeAlias

import psycopg

from tidewheel_projections.locks import Lock

Connection: TypeAlias = psycopg.Connection[Any]


def connect(dsn: str) -> Connection:
    """A connection in autocommit mode that is quick to notice when the server is gone."""
    return psycopg.connect(
        dsn,
        autocommit=True,
        connect_timeout=5,
        application_name="tidewheel-notifier",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )


def prepare(connection: Connection) -> None:
    """Make the tables. Several may try at once."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (Lock.NOTIFIER_MIGRATION,))
        connection.execute(resources.files("tidewheel_services.notifier").joinpath("schema.sql").read_bytes())


def clean(text: str) -> str:
    """Postgres keeps no zero in a text."""
    return text.replace("\x00", "\ufffd")
