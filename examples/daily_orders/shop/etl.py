"""What there is to load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shop.warehouse import opened
from tidewheel.task import Context

LANDING = Path("landing")


def list_files(day: str, context: Context) -> dict[str, Any]:
    """The files that landed for ``day``, and how many rows they should have together."""
    folder = LANDING / day
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["rows"]
    with opened() as warehouse:
        warehouse.execute("INSERT OR REPLACE INTO expected VALUES (?, ?)", (context.run_id, expected))
    files = [{"path": str(path)} for path in sorted(folder.glob("*.csv"))]
    print(f"{len(files)} files of {day}, {expected} rows expected")
    return {"files": files, "expected": expected}
