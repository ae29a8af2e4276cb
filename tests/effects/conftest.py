"""A real Postgres prepared for fenced writes, and a real HTTP server that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
def s3() -> Iterator[dict[str, Any]]:
    """How fsspec is told of a server with the bucket ``effects``."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    region, key = {"region_name": "us-east-1"}, "any"
    client = boto3.client("s3", endpoint_url=address, aws_access_key_id=key, aws_secret_access_key=key, **region)
    client.create_bucket(Bucket="effects")
    yield {"endpoint_url": address, "key": key, "secret": key, "client_kwargs": region}
    server.stop()
