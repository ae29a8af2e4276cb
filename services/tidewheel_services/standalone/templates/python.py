"""The template `python`: a DAG in Python."""

from __future__ import annotations

from tidewheel_services.standalone.templates.template import Template

FLOW = '''\
"""A DAG in Python: the file says what a YAML file would say, and holds the functions that it runs.

Building a DAG executes none of its tasks. `tidewheel validate .` shows every mistake with its line here.
"""

from datetime import timedelta

from tidewheel.authoring import cel, dag, inputs, run, shell, task


@task(retries=2, timeout=timedelta(minutes=5))
def find_words(text: str) -> list[str]:
    """What it returns is the task's output."""
    return text.split()


@task
def measure(word: str) -> dict[str, object]:
    print(f"measuring {word!r}")
    return {"word": word, "letters": len(word)}


@task
def longest(measured: list[dict[str, int]]) -> dict[str, object]:
    return max(measured, key=lambda one: one["letters"])


with dag(
    "words",
    description="Find the longest word.",
    inputs={"text": {"type": "string", "default": "the wheel turns"}},
):
    words = find_words(text=inputs.text)
    # One instance for each word. Who reads an output needs its task: no arrows are wanted here.
    measured = measure.override(for_each=words.output, as_="word", max_parallel=4)(word=cel.word)
    found = longest(measured)
    tell = shell("tell", 'echo "$WORD"', env={"WORD": found.output.word}, if_=found.output.letters > 3)
    done = shell("done", "echo done", env={"WHO": f"run {run.id}"}, trigger_rule="none_failed")
    tell >> done
'''

TEMPLATE = Template(
    summary="the same in Python: @task and `with dag(...)`",
    files={"flow.py": FLOW},
    tries=("trigger words --input text='fair winds' --wait", "show words RUN_ID", "logs words RUN_ID tell"),
)
