"""Writing: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tidewheel_services.cli.client import Listed

#: The same colours wherever a state is shown.
STATE_STYLES: Mapping[str, str] = {
    "success": "green",
    "failed": "red",
    "upstream_failed": "dark_orange",
    "running": "cyan",
    "leased": "cyan",
    "queued": "yellow",
    "scheduled": "bright_black",
    "retrying": "magenta",
    "deferred": "magenta",
    "skipped": "bright_black",
    "cancelled": "bright_black",
    "active": "green",
    "suspended": "yellow",
    "left": "bright_black",
}


def write_json(document: object) -> None:
    """One document, and a newline."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, ensure_ascii=ascii_only, indent=2) + "\n")


def write(text: str = "") -> None:
    """A plain line."""
    sys.stdout.write(text + "\n")


def console() -> Console:
    """The terminal; when written to a pipe, lines are not cut to a guessed width."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=160)


def state(name: str) -> str:
    """A state in its colour."""
    return f"[{STATE_STYLES.get(name, 'default')}]{name}[/]"


def table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], empty: str) -> None:
    """Rows under column names; ``empty`` says what it means that there are none."""
    from rich.table import Table

    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        drawn.add_column(
            column, justify="right" if column in ("slots", "used", "waiting", "tasks", "attempt") else "left"
        )
    for row in rows:
        drawn.add_row(*row)
    if drawn.row_count:
        console().print(drawn)
    else:
        write(empty)


def write_list(
    listed: Listed,
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[Any], Sequence[RenderableType]],
    empty: str,
) -> None:
    """Entries of a list as JSON or as a table; that it goes on, if it does, is said beside what programs read."""
    if as_json:
        write_json(listed.items)
    else:
        table(columns, map(row, listed.items), empty)
    if listed.after is not None:
        sys.stdout.flush()
        goes_on = f"--after {listed.after} goes on from here, a larger --limit shows more at once"
        sys.stderr.write(f"there is more: {goes_on}\n")


def plain(text: object) -> str:
    """Text from elsewhere: its square brackets are no markup, and it cannot steer the terminal."""
    from rich.markup import escape

    cleaned = "".join(char if char.isprintable() else " " for char in str(text))
    return escape(cleaned)


def size(count: int) -> str:
    """Bytes in a few characters."""
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"


def took(seconds: float | None) -> str:
    """A duration in a few characters."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
