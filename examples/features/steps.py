"""The functions of python_task.yaml and checkpoints.yaml: they take JSON values and return one."""

from __future__ import annotations

import asyncio
from typing import Any

from tidewheel.task import Context, current


def count(text: str, limit: int) -> dict[str, Any]:
    """How many words there are, and the first of them. ``current()`` knows the attempt."""
    words = text.split()
    context = current()
    context.heartbeat({"words": len(words)})
    return {"words": len(words), "first": words[:limit], "attempt": context.attempt, "key": context.idempotency_key}


async def shout(text: str, context: Context) -> str:
    """A parameter named ``context`` is filled in; an async function is awaited."""
    await asyncio.sleep(0)
    said = text.upper() + context.env["MARK"]
    print(said)
    return said


def copy(pages: int, context: Context) -> dict[str, int]:
    """Copy pages, and leave word of each. The first attempt breaks down half-way, the next one goes on from there."""
    began = page = (context.checkpoint or {"page": 0})["page"]
    while page < pages:
        if context.attempt == 1 and page == pages // 2:
            raise ConnectionError(f"the line broke before page {page}")
        print("copying page", page)
        page += 1
        context.save_checkpoint({"page": page})
    return {"began": began, "pages": page}
