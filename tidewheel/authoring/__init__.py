"""Workflows written in Python, compiled to the same definition as a YAML file: same checks, same version.

from tidewheel.authoring import dag, inputs, shell, task

@task(retries=2)
def extract(day: str) -> dict[str, int]:
    return {"rows": 12}

with dag("daily", schedule="0 6 * * *", inputs={"day": {"type": "date"}}):
    rows = extract(day=inputs.day).output.rows
    shell("tell", 'echo "$ROWS rows"', env={"ROWS": rows}, if_=rows > 0)

Building executes nothing and knows no engine: ``dags`` and ``tasks`` collect what the file says, with the place of each
word in its source (``places``); ``nodes`` and ``needs`` make of it the nodes that YAML files consist of, and
``tidewheel.definition`` does the rest. ``files`` is the way in for programs; it executes a file in a process of its own
(``child``). Workers import these files too, so nothing heavy is imported before something is compiled.
"""

from tidewheel.authoring.dags import Dag, dag
from tidewheel.authoring.expression import Expression, cel, env, event, inputs, item, run, secrets
from tidewheel.authoring.functions import TaskFunction, task
from tidewheel.authoring.tasks import (
    Task,
    celery,
    container,
    http,
    kubernetes,
    shell,
    switch,
    trigger,
    wait_for,
    workflow,
)

__all__ = [
    "Dag",
    "Expression",
    "Task",
    "TaskFunction",
    "cel",
    "celery",
    "container",
    "dag",
    "env",
    "event",
    "http",
    "inputs",
    "item",
    "kubernetes",
    "run",
    "secrets",
    "shell",
    "switch",
    "task",
    "trigger",
    "wait_for",
    "workflow",
]
