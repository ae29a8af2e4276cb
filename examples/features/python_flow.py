"""Fan-out, a branch, a wait and another workflow, in Python.

    tidewheel trigger python_flow --wait
    tidewheel trigger python_flow -i files=0 --wait
    tidewheel show python_flow RUN

With files they are loaded, one instance each, and reported by a workflow of their own; without any the run says so.
"""

from tidewheel.authoring import cel, dag, inputs, shell, switch, task, trigger, wait_for, workflow


@task
def list_files(count: int) -> list[dict[str, str]]:
    """In earnest: look into a bucket."""
    return [{"path": f"{number}.csv"} for number in range(count)]


@task(retries=1)
def load(path: str) -> str:
    """One file."""
    return path.upper()


with dag(
    "python_flow",
    description="A fan-out, a switch, a wait and other workflows, in Python.",
    inputs={"files": {"type": "integer", "default": 2}},
):
    files = list_files(inputs.files)
    loaded = load.override(for_each=files.output, as_="file", max_parallel=8)(path=cel.file.path)
    settle = wait_for("settle", time="200ms")
    report = workflow("report", "other_dags_report", inputs={"region": "eu", "rows": cel.size(loaded.output)})
    nothing = shell("nothing", "echo nothing came")
    switch("route", (cel.size(files.output) > 0, [loaded]), otherwise=nothing)
    greet = trigger("greet", "hello")
    loaded >> settle >> report >> greet
