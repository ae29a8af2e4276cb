"""What the list of events says of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidewheel_services.cli.following import _body


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"message": "exit status 3", "retry_at": 1_767_571_201_570},
            "message=exit status 3, retry_at=2026-01-05T00:00:01.570Z",
        ),
        ({"state": "success", "reason": "by hand"}, "state=success, reason=by hand"),
        ({"tasks": json.dumps(["load", "join"]), "ending": "[]"}, "tasks=load join"),
        (
            {"tasks": json.dumps([f"load[{n}]" for n in range(7)])},
            "tasks=load[0] load[1] load[2] load[3] load[4] and 2 more",
        ),
        ({"retry_at": None, "exit_code": 0}, "exit_code=0"),
        ("no mapping", ""),
    ],
)
def test_instants_marks_and_cleared_tasks_are_told_as_people_read_them(body: Any, said: str) -> None:
    assert _body(body) == said
