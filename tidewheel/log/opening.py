"""Opens a log by its URL.

``kafka://host:port[,host:port]?prefix=tidewheel.&partitions=32&replication=3`` (a query name with a dot, such as
``security.protocol``, is a librdkafka setting), ``sqlite:///absolute/path.db?partitions=4``, ``memory:``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tidewheel.log.interface import Log, LogMisconfigured
from tidewheel.log.memory import MemoryLog

_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")
_PARTITIONS_MAX = 10_000
_FORMS = "kafka://host:port, sqlite:///absolute/path.db or memory:"


def open_log(url: str, on_stuck: Callable[[str, float], None] | None = None) -> Log:
    """The log that ``url`` names. Raises ``LogMisconfigured`` for a bad URL, ``LogUnavailable`` if nothing answers.

    ``on_stuck(doing, seconds)`` is called instead of ending the process when a call of the Kafka client hangs.
    """
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise LogMisconfigured(f"log URL '{url}' is malformed ({error}): expected {_FORMS}") from None
    options = _Options(url, query)
    match parts.scheme:
        case "kafka":
            return _open_kafka(url, parts.netloc, parts.path, options, on_stuck)
        case "sqlite":
            return _open_sqlite(url, parts.netloc, unquote(parts.path), options)
        case "memory":
            partitions = options.number("partitions", _PARTITIONS_MAX) or 4
            options.refuse_rest()
            return MemoryLog(partitions)
        case _:
            raise LogMisconfigured(f"log URL '{url}' names no known log: expected {_FORMS}")


class _Options:
    """The query of a URL; every name must be taken."""

    def __init__(self, url: str, query: dict[str, str]) -> None:
        self._url = url
        self._query = query

    def text(self, name: str) -> str | None:
        return self._query.pop(name, None)

    def number(self, name: str, largest: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= largest:
            raise LogMisconfigured(f"log URL '{self._url}': {name}={text} is not a number from 1 to {largest}")
        return int(text)

    def dotted(self) -> dict[str, str]:
        names = [name for name in self._query if "." in name]
        return {name: self._query.pop(name) for name in names}

    def refuse_rest(self) -> None:
        if self._query:
            raise LogMisconfigured(f"log URL '{self._url}': unknown option '{next(iter(self._query))}'")


def _open_kafka(
    url: str, servers: str, path: str, options: _Options, on_stuck: Callable[[str, float], None] | None
) -> Log:
    from tidewheel.log.kafka import KafkaLog
    from tidewheel.log.kafka.log import DEFAULT_PREFIX
    from tidewheel.log.kafka.watchdog import end_process

    if path not in ("", "/"):
        raise LogMisconfigured(f"log URL '{url}': '{path}' has no meaning for Kafka; a prefix is given as ?prefix=…")
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise LogMisconfigured(f"log URL '{url}': '{server}' is not host:port, such as kafka://127.0.0.1:9092")
    prefix = options.text("prefix")
    prefix = DEFAULT_PREFIX if prefix is None else prefix
    if not _PREFIX.fullmatch(prefix):
        raise LogMisconfigured(f"log URL '{url}': prefix '{prefix}' may only have letters, digits, '.', '_' and '-'")
    partitions = options.number("partitions", _PARTITIONS_MAX)
    replication = options.number("replication", 100)
    settings = options.dotted()
    options.refuse_rest()
    stuck = on_stuck or end_process
    return KafkaLog(servers, prefix, partitions, replication=replication, on_stuck=stuck, options=settings)


def _open_sqlite(url: str, host: str, path: str, options: _Options) -> Log:
    from tidewheel.log.sqlite import SqliteLog

    if host or not path.strip("/"):
        raise LogMisconfigured(
            f"log URL '{url}': expected three slashes and an absolute path, sqlite:///path/to/log.db"
        )
    partitions = options.number("partitions", _PARTITIONS_MAX)
    options.refuse_rest()
    return SqliteLog(Path(path), partitions)
