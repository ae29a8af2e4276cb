"""The template `scheduled`: a wall clock, intervals without a gap, and days that are caught up with."""

from __future__ import annotations

from tidewheel_services.standalone.templates.template import Template

WORKFLOW = """\
# yaml-language-server: $schema=workflow.schema.json
# Each slot of the schedule makes one run, whatever crashes, for the interval that ends with it.
id: nightly
description: Close the day that has ended.
schedule:
  cron: "30 2 * * *"                # every night on the wall clock of the zone, also when clocks change
  timezone: Europe/Zurich
  start: 2026-01-01                 # nothing before
  catchup: all                      # days that passed while it was paused: each, in order …
  catchup_window: 7d                # … but none older than a week
  overlap: queue
  jitter: 2m
inputs:
  # A run that is triggered by hand has no interval: it closes the given day.
  day: {type: date, default: "${{ run.interval.start == null ? '2026-01-01' : run.interval.start }}"}
concurrency: {max_runs: 1}
tasks:
  - id: close_day
    env: {DAY: "${{ inputs.day }}", KIND: "${{ run.kind }}"}
    run: |
      echo "closing $DAY ($KIND)"
      printf '{"closed": "%s"}' "$DAY" > "$TIDEWHEEL_OUTPUT"
    retry: {max: 3, delay: 30s, max_delay: 10m}
    timeout: 15m
"""

TEMPLATE = Template(
    summary="cron in a time zone, catch-up, data intervals",
    files={"nightly.yaml": WORKFLOW},
    tries=(
        "plan nightly.yaml --count 3",
        "plan nightly.yaml --count 1 --paused-since 2026-03-27 --until 2026-03-31",
        "trigger nightly --input day=2026-01-31 --wait",
    ),
)
