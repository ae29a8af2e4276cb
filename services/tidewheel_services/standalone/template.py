"""What `tidewheel init` writes: a workflow, its Python, and how to go on."""

from __future__ import annotations

from collections.abc import Mapping

WORKFLOW = """\
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

README = """\
# Workflows

    tidewheel validate hello.yaml     # every mistake, with line and column
    tidewheel plan hello.yaml         # when it will run
    tidewheel dev .                   # everything in one process; Ctrl-C ends it, the next start goes on

In another terminal:

    tidewheel trigger hello --input name=Ann --wait
    tidewheel runs hello
    tidewheel show hello RUN_ID
    tidewheel logs hello RUN_ID greet

State is kept in `.tidewheel/`; remove it to start over.
"""

FILES: Mapping[str, str] = {
    "hello.yaml": WORKFLOW,
    "hello.py": PYTHON,
    "README.md": README,
    ".gitignore": ".tidewheel/\n__pycache__/\n",
}
