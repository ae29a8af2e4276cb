"""Several workflows from one loop.

    tidewheel validate examples/features/python_loop.py
    tidewheel trigger python_loop_eu --wait
    tidewheel trigger python_loop_us --wait

The loop runs when the file is looked at; what is deployed are two workflows like any others.
"""

from tidewheel.authoring import dag, inputs, shell

for region, zone in (("eu", "Europe/Berlin"), ("us", "America/Chicago")):
    with dag(
        f"python_loop_{region}",
        description=f"The day of {region} is closed at its own midnight.",
        schedule={"cron": "0 0 * * *", "timezone": zone, "dst_gap": "skip"},
        inputs={"rows": {"type": "integer", "default": 1}},
        concurrency={"max_runs": 1},
    ):
        count = shell("count", 'echo "$ROWS" > "$TIDEWHEEL_OUTPUT"', env={"ROWS": inputs.rows})
        shell("close", f"echo closing {region}", if_=count.output > 0)
