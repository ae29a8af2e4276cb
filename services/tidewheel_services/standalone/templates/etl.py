"""The template `etl`: a list that is known only when it runs, one task for each of its items, and a report."""

from __future__ import annotations

from tidewheel_services.standalone.templates.template import Template

WORKFLOW = """\
# yaml-language-server: $schema=workflow.schema.json
# One instance of `load` runs for each file that `list_files` has found.
id: etl
description: Find files, load each, report what was loaded.
inputs:
  day: {type: date, default: "2026-01-31"}
  files: {type: integer, default: 5}
defaults: {retries: 2, timeout: 10m}
tasks:
  - id: list_files
    python: etl:list_files
    with: {day: "${{ inputs.day }}", count: "${{ inputs.files }}"}

  - id: load
    needs: [list_files]
    for_each: ${{ tasks.list_files.output.files }}
    as: file
    max_parallel: 3
    python: etl:load
    with: {path: "${{ file.path }}", rows: "${{ file.rows }}"}

  - id: report
    needs: [load]
    python: etl:report
    with: {loaded: "${{ tasks.load.output }}"}

  - id: nothing_came
    needs: [report]
    if: ${{ tasks.report.output.rows == 0 }}
    env: {DAY: "${{ inputs.day }}"}
    run: echo "nothing came for $DAY"
"""

PYTHON = '''\
"""The tasks of etl.yaml. Hand on names and numbers, not the data itself."""


def list_files(day: str, count: int) -> dict[str, list[dict[str, object]]]:
    """In earnest: look into a bucket or a directory."""
    return {"files": [{"path": f"landing/{day}/{n}.csv", "rows": 100 * n} for n in range(count)]}


def load(path: str, rows: int) -> dict[str, object]:
    """In earnest: read the file, write the rows; docs/effects.md shows how a late second attempt cannot spoil them."""
    print(f"loading {path}")
    return {"path": path, "rows": rows}


def report(loaded: list[dict[str, int]]) -> dict[str, int]:
    """The output of a task with `for_each` is the list of its instances' outputs."""
    return {"files": len(loaded), "rows": sum(one["rows"] for one in loaded)}
'''

TEMPLATE = Template(
    summary="extract, load each item (for_each), report",
    files={"etl.yaml": WORKFLOW, "etl.py": PYTHON},
    tries=("trigger etl --input files=8 --wait", "show etl RUN_ID", "trigger etl --input files=0 --wait"),
)
