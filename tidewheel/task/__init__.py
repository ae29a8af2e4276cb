"""What a task's code may use: the context it runs in. Light to import, for it is in every runner.

from tidewheel.task import current

def load(path: str) -> dict[str, int]:
    rows = insert(path, key=current().idempotency_key)
    return {"rows": rows}
"""

from tidewheel.task.context import Context, current

__all__ = ["Context", "current"]
