"""Jobs, against an API server that behaves as the tests say (``cluster``). No real cluster was at hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import Cluster, ended, running, waiting
from tests.worker.conftest import StartWorker, wait_until
from tests.worker.engine import Engine
from tidewheel.core.assignment import PythonSpec, call_of
from tidewheel.core.commands import ReportCancelled
from tidewheel.core.workflow import Kubernetes


@pytest.fixture
def cluster(environment: dict[str, str], tmp_path: Path) -> Iterator[Cluster]:
    environment["KUBECONFIG"] = str(tmp_path / "kubeconfig")
    cluster = Cluster()
    with cluster.serve(tmp_path / "kubeconfig"):
        yield cluster


def job(env: dict[str, str] | None = None, **keys: Any) -> PythonSpec:
    name, arguments = call_of(Kubernetes(image="shop/load:1", **keys))
    return PythonSpec(callable=name, kwargs=arguments, env={key: (value,) for key, value in (env or {}).items()})


def test_a_job_is_created_followed_and_deleted(engine: Engine, process_worker: StartWorker, cluster: Cluster) -> None:
    cluster.stories = [{"phase": "Pending"}, running(), ended(message='{"rows": 3}')]
    process_worker()
    task = engine.assign(job({"DAY": "monday"}, command=("load", "--fast"), memory="512m", cpus=0.5))
    engine.ending(task, 60)
    assert engine.success(task) == {"rows": 3}
    assert engine.text(task).splitlines() == ["hello", "world"]
    assert cluster.jobs == {} and cluster.deleted == cluster.created and len(cluster.created) == 1


def test_what_the_job_is(engine: Engine, process_worker: StartWorker, cluster: Cluster) -> None:
    cluster.stories = [running()]
    process_worker()
    over = {"spec": {"template": {"spec": {"containers": [{"imagePullPolicy": "Always"}], "nodeSelector": {"a": "b"}}}}}
    task = engine.assign(
        job({"DAY": "monday"}, command=("load",), entrypoint=("/bin/x",), memory="512m", service_account="me", job=over)
    )
    wait_until(lambda: bool(cluster.jobs), "the Job is there", 60)
    (made,) = cluster.jobs.values()
    engine.stop(task, cancel=True)
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert made["spec"]["backoffLimit"] == 0 and spec["restartPolicy"] == "Never"
    assert made["metadata"]["annotations"] == {
        "tidewheel/dag": "shop",
        "tidewheel/run_id": "r1",
        "tidewheel/task_id": task,
    }
    assert spec["serviceAccountName"] == "me" and spec["nodeSelector"] == {"a": "b"}
    assert container["image"] == "shop/load:1" and container["imagePullPolicy"] == "Always"
    assert container["command"] == ["/bin/x"] and container["args"] == ["load"]
    assert container["resources"] == {"limits": {"memory": "512Mi"}}
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["DAY"] == "monday" and variables["TIDEWHEEL_RUN_ID"] == "r1"
    assert variables["TIDEWHEEL_OUTPUT"] == "/dev/termination-log"


def test_an_exit_status_is_one(engine: Engine, process_worker: StartWorker, cluster: Cluster) -> None:
    cluster.stories = [running(), ended(75, reason="Error")]
    process_worker()
    task = engine.assign(job())
    engine.ending(task, 60)
    failure = engine.failure(task)
    assert (failure.kind, failure.exit_code) == ("exit_code", 75)
    assert cluster.jobs == {}


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (waiting("InvalidImageName", "no such name"), "the pod cannot start: InvalidImageName: no such name"),
        (ended(137, reason="OOMKilled"), "more memory than its limit"),
        ({"phase": "Failed", "reason": "Evicted"}, "the pod ended without running: Evicted"),
    ],
)
def test_a_pod_that_cannot_run_says_why(
    engine: Engine, process_worker: StartWorker, cluster: Cluster, story: dict[str, Any], words: str
) -> None:
    cluster.stories = [story]
    process_worker()
    task = engine.assign(job())
    engine.ending(task, 60)
    assert words in engine.failure(task).message
    assert cluster.jobs == {}


def test_a_refusal_is_told(engine: Engine, process_worker: StartWorker, cluster: Cluster) -> None:
    cluster.refuse = (403, "jobs.batch is forbidden")
    process_worker()
    task = engine.assign(job())
    engine.ending(task, 60)
    assert "the cluster refuses the Job: 403: jobs.batch is forbidden" in engine.failure(task).message


def test_a_cancel_deletes_the_job(engine: Engine, process_worker: StartWorker, cluster: Cluster) -> None:
    cluster.stories = [running()]
    process_worker(grace_s=30.0)
    task = engine.assign(job())
    wait_until(lambda: bool(cluster.jobs), "the Job is there", 60)
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task, 60), ReportCancelled)
    assert cluster.jobs == {}


def test_what_an_earlier_attempt_left_is_gone_before_the_next_begins(
    engine: Engine, process_worker: StartWorker, cluster: Cluster
) -> None:
    cluster.stories = [running()]
    process_worker(grace_s=0.0)
    task = engine.assign(job(), "load")
    wait_until(lambda: bool(cluster.jobs), "the Job is there", 60)
    (left,) = list(cluster.jobs.values())
    engine.stop(task, cancel=True)
    engine.ending(task, 60)
    # As if its worker had been killed: nobody has deleted it.
    with cluster.lock:
        cluster.jobs[left["metadata"]["name"]] = left
        cluster.stories, cluster.asked = [ended()], 0
    engine.assign(job(), "load", attempt=2)
    engine.wait(lambda: len(engine.endings("load")) == 2, "the second attempt's end", 60)
    assert cluster.deleted[-2:] == [left["metadata"]["name"], cluster.created[-1]]


def test_without_a_cluster_the_reason_is_clear(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], tmp_path: Path
) -> None:
    environment.update({"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)})
    process_worker()
    task = engine.assign(job())
    engine.ending(task, 60)
    assert "no Kubernetes cluster is configured for this worker" in engine.failure(task).message
