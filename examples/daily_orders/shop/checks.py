"""Whether what was loaded is plausible."""

from __future__ import annotations

from shop.warehouse import opened
from tidewheel.task import Context


def volume(context: Context) -> dict[str, float]:
    """The rows that this run has loaded, also as a share of those that were expected."""
    with opened() as warehouse:
        (expected,) = warehouse.execute("SELECT rows FROM expected WHERE run_id = ?", (context.run_id,)).fetchone()
        (rows,) = warehouse.execute("SELECT count(*) FROM orders WHERE run_id = ?", (context.run_id,)).fetchone()
    print(f"{rows} of {expected} rows")
    return {"rows": rows, "ratio": rows / expected}
