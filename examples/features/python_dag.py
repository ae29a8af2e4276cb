"""A workflow in Python, with the functions that it runs.

    tidewheel validate examples/features/python_dag.py
    tidewheel trigger python_dag -i limit=3 --wait
    tidewheel logs python_dag RUN tell

The log says "6 rows of 2026-01-31". Calling a function in the block makes a task, and reading its output needs it.
"""

from datetime import timedelta

from tidewheel.authoring import dag, inputs, shell, task


@task(retries=2, timeout=timedelta(minutes=1))
def extract(day: str, limit: int = 100) -> dict[str, int]:
    """Also a plain function, for workers and tests."""
    print(f"extracting {day}")
    return {"rows": 2 * limit}


with dag(
    "python_dag",
    description="Tasks from functions and commands, in Python.",
    schedule={"cron": "30 2 * * *", "timezone": "Europe/Zurich"},
    inputs={"day": {"type": "date", "default": "2026-01-31"}, "limit": {"type": "integer", "default": 10}},
):
    rows = extract(inputs.day, limit=inputs.limit).output.rows
    many = shell("many", "echo many", if_=rows > 1000)
    tell = shell("tell", 'echo "$TEXT"', env={"TEXT": f"{rows} rows of {inputs.day}"}, trigger_rule="none_failed")
    many >> tell
