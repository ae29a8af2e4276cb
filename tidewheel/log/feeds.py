"""Opens a feed by its URL.

``kafka://host:port[,host:port]?group=…`` (a query name with a dot is a librdkafka setting) or
``sqlite:///absolute/path.db``. Without one the feed is where the log is: the same cluster, or a file beside the log's.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tidewheel.log.feed import Feed
from tidewheel.log.interface import LogMisconfigured

#: Consumer group of the listeners of a log with the default prefix.
_DEFAULT_GROUP = "tidewheel.listeners"
_FORMS = "kafka://host:port or sqlite:///absolute/path.db"


def feed_beside(log: str) -> str:
    """The URL of the feed of a log at this URL. Raises ``LogMisconfigured`` for a log that has none."""
    parts = urlsplit(log)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    match parts.scheme:
        case "kafka":
            options = {name: value for name, value in query.items() if "." in name}
            group = query.get("prefix", "tidewheel.") + "listeners"
            return f"kafka://{parts.netloc}?{urlencode({'group': group, **options})}"
        case "sqlite":
            path = Path(unquote(parts.path))
            return f"sqlite://{quote(str(path.with_name(f'{path.stem}-topics.db')))}"
    raise LogMisconfigured(f"the log {log} has no topics for triggers: name a feed, {_FORMS}")


def open_feed(url: str) -> Feed:
    """The feed that ``url`` names. Raises ``LogMisconfigured`` for a bad URL."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    match parts.scheme:
        case "kafka":
            from tidewheel.log.kafka.feed import KafkaFeed

            group = query.pop("group", _DEFAULT_GROUP)
            _refuse(url, [name for name in query if "." not in name])
            if not parts.netloc or parts.path not in ("", "/"):
                raise LogMisconfigured(f"feed URL '{url}' names no servers: expected kafka://host:port")
            return KafkaFeed(parts.netloc, group, query)
        case "sqlite" if not parts.netloc and parts.path.strip("/"):
            from tidewheel.log.sqlite.feed import SqliteFeed

            _refuse(url, list(query))
            return SqliteFeed(Path(unquote(parts.path)))
    raise LogMisconfigured(f"feed URL '{url}' names no known feed: expected {_FORMS}")


def _refuse(url: str, names: list[str]) -> None:
    if names:
        raise LogMisconfigured(f"feed URL '{url}': unknown option '{names[0]}'")
