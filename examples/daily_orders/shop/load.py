"""Load one file: `python -m shop.load landing/2026-01-31/eu.csv`. Loading it again replaces its rows."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import sys
from pathlib import Path

from shop.warehouse import opened

#: "Try again later" (EX_TEMPFAIL): what the task's `retry.only_on` names.
BUSY = 75


def load(file: str, run_id: str) -> int:
    """The number of rows that are in the warehouse now."""
    with Path(file).open(newline="", encoding="utf-8") as stream:
        rows = [
            (run_id, file, line, row["number"], float(row["amount"])) for line, row in enumerate(csv.DictReader(stream))
        ]
    with opened() as warehouse:
        warehouse.execute("DELETE FROM orders WHERE run_id = ? AND file = ?", (run_id, file))
        warehouse.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
    return len(rows)


def main() -> int:
    """Exit code 75 if the warehouse is busy."""
    file = sys.argv[1]
    if not os.environ.get("PGPASSWORD"):
        print("no PGPASSWORD: the warehouse lets nobody in without one", file=sys.stderr)
        return 1
    try:
        rows = load(file, os.environ["RUN_ID"])
    except sqlite3.OperationalError as error:
        print(f"the warehouse is busy: {error}", file=sys.stderr)
        return BUSY
    print(f"{rows} rows of {file}")
    Path(os.environ["TIDEWHEEL_OUTPUT"]).write_text(json.dumps({"file": file, "rows": rows}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
