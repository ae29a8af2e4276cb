"""Draw the states of tasks, runs and backfills into docs/journal.md, from ``tidewheel/core/transitions.py``.

Run it when a table has changed; a test fails until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tidewheel.core import events as e
from tidewheel.core.transitions import BACKFILL, LIVE, RUN, TASK, TASK_ENDED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "journal.md"
_RUN_ENDED = frozenset({"success", "failed", "cancelled"})
_BACKFILL_ENDED = frozenset({"finished", "cancelled"})

#: State and event, and the state after it.
Row = tuple[tuple[str, type[e.Event]], str]


def drawing(table: Iterable[Row], start: str, ended: Iterable[str]) -> str:
    """The table as a Mermaid state diagram: an arrow for each pair of states, labelled with the events that take it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for before, name, after in _steps(table):
        arrows.setdefault((before, after), []).append(name)
    lines = ["stateDiagram-v2", f"    [*] --> {start}"]
    lines += [f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in arrows.items()]
    lines += [f"    {state} --> [*]" for state in sorted(ended)]
    return "\n".join(lines)


def _steps(table: Iterable[Row]) -> Iterator[tuple[str, str, str]]:
    for (before, event), after in table:
        yield before, event.__name__, after
        # Only an attempt that ran is tried again.
        if before in LIVE and after == "failed" and "retry_at" in event.__struct_fields__:
            yield before, f"{event.__name__} with retry_at", "retrying"


def drawn(page: str) -> str:
    """The page with all drawings as the tables are now."""
    for name, picture in (
        ("task", drawing(TASK.items(), "scheduled", TASK_ENDED)),
        ("run", drawing(RUN.items(), "queued", _RUN_ENDED)),
        ("backfill", drawing(BACKFILL.items(), "running", _BACKFILL_ENDED)),
    ):
        begin, end = f"<!-- {name} states: drawn by tools/draw_states.py -->", f"<!-- end of {name} states -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        assert after, f"the page has lost its mark '{begin}' or '{end}'"
        page = f"{before}{begin}\n```mermaid\n{picture}\n```\n{end}{after}"
    return page


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
