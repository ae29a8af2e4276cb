"""The template `hello`: a workflow and its Python."""

from __future__ import annotations

from tidewheel_services.standalone.templates.template import Template

WORKFLOW = """\
# yaml-language-server: $schema=workflow.schema.json
# A first workflow. While `tidewheel dev` runs on this directory, saving this file makes it live.
id: hello
description: Greet, count the letters, and tell.
schedule:
  cron: "0 6 * * *"
  timezone: UTC
inputs:
  name: {type: string, default: world}
tasks:
  - id: greet
    env: {NAME: "${{ inputs.name }}"}
    run: |
      echo "hello, $NAME"
      printf '{"text": "hello, %s"}' "$NAME" > "$TIDEWHEEL_OUTPUT"

  - id: count
    needs: [greet]
    python: hello:count
    with: {text: "${{ tasks.greet.output.text }}"}
    retries: 2

  - id: tell
    needs: [count]
    if: ${{ tasks.count.output.letters > 0 }}
    env: {LETTERS: "${{ tasks.count.output.letters }}"}
    run: echo "that makes $LETTERS letters"
"""

PYTHON = '''\
"""The Python tasks of hello.yaml: plain functions of JSON values."""


def count(text: str) -> dict[str, int]:
    """What it returns is the task's output; later tasks read it as tasks.count.output."""
    print(f"counting the letters of {text!r}")
    return {"letters": sum(letter.isalpha() for letter in text)}
'''

TEMPLATE = Template(
    summary="a first workflow: shell, Python, a condition",
    files={"hello.yaml": WORKFLOW, "hello.py": PYTHON},
    tries=(
        "trigger hello --input name=Ann --wait",
        "show hello RUN_ID",
        "logs hello RUN_ID greet",
    ),
)
