"""A real Postgres prepared for fenced writes, and a real HTTP server that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres import fresh_database, open_postgres
from tidewheel.effects.postgres import install


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the right to create databases."""
    with open_postgres(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def dsn(postgres_server: str) -> Iterator[str]:
    """A database that is prepared, with a table of the user's."""
    with fresh_database(postgres_server) as database:
        with psycopg.connect(database) as connection:
            install(connection)
            connection.execute("CREATE TABLE ledger (id bigserial, attempt integer, note text)")
        yield database


@pytest.fixture(scope="module")
def s3(monkeypatch_module: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with the bucket ``effects``; its credentials are in the environment."""
    import boto3
    from moto.server import ThreadedMotoServer

    for name, value in {"ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch_module.setenv(f"AWS_{name}", value)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket="effects")
    yield address
    server.stop()


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    """``monkeypatch`` for as long as a module's tests run."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch
