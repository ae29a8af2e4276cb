"""The command `publish`: one record on a topic that triggers may name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidewheel_services.cli.faults import UNREACHABLE, CliError
from tidewheel_services.cli.options import FeedUrl, Json, LogUrl, settings
from tidewheel_services.cli.output import write, write_json

Topic = Annotated[str, typer.Argument(help="The topic's name, as triggers say it.", show_default=False)]
Value = Annotated[str | None, typer.Option("--value", help="The record's value, such as JSON.", show_default=False)]
File = Annotated[
    Path | None, typer.Option("--file", help="A file that holds the value; - is the standard input.", allow_dash=True)
]
Key = Annotated[str | None, typer.Option("--key", help="The record's key.", show_default=False)]
Headers = Annotated[
    list[str], typer.Option("--header", metavar="NAME=VALUE", help="A header; may be repeated.", show_default=False)
]


def publish(
    topic: Topic,
    value: Value = None,
    file: File = None,
    key: Key = None,
    headers: Headers = [],  # noqa: B006 (typer makes the list)
    log: LogUrl = "",
    feed: FeedUrl = "",
    as_json: Json = False,
) -> None:
    """Write one record to a topic of the feed: on Kafka as any producer would, embedded into a file beside the log."""
    from tidewheel.log.feeds import feed_beside, open_feed

    if (value is None) == (file is None):
        raise CliError("give the record's value by --value, or by --file", UNREACHABLE)
    content = _content(file) if file is not None else (value or "").encode()
    surroundings = settings(log=log, feed=feed)
    opened = open_feed(surroundings.feed or feed_beside(surroundings.log))
    try:
        pairs = [_header(text) for text in headers]
        partition, offset = opened.publish(topic, None if key is None else key.encode(), content, pairs)
    finally:
        opened.close()
    if as_json:
        write_json({"topic": topic, "partition": partition, "offset": offset})
    else:
        write(f"published {topic}/{partition}/{offset}")


def _content(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise CliError(f"--file {file}: {error.strerror}", UNREACHABLE) from None


def _header(text: str) -> tuple[str, bytes]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise CliError(f"--header {text!r}: write NAME=VALUE", UNREACHABLE)
    return name, value.encode()
