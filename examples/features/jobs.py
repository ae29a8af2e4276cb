"""A Celery application for celery.yaml. Its broker and its results are directories, so that no server is needed."""

from __future__ import annotations

from pathlib import Path

from celery import Celery

_HERE = Path(__file__).parent / "build" / "celery"
for folder in ("queue", "control", "results"):
    (_HERE / folder).mkdir(parents=True, exist_ok=True)

app = Celery("jobs", broker="filesystem://", backend=f"file://{_HERE / 'results'}")
app.conf.broker_transport_options = {
    "data_folder_in": str(_HERE / "queue"),
    "data_folder_out": str(_HERE / "queue"),
    "control_folder": str(_HERE / "control"),
}


@app.task(name="jobs.add")
def add(number: int, more: int) -> dict[str, int]:
    """What celery.yaml hands over."""
    return {"sum": number + more}
