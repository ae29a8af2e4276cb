"""The ``kubernetes`` action: run a Job to its end and follow the log of its pod.

The Job is named after the attempt and labelled with the task. What an earlier attempt left in the cluster is deleted,
and gone, before this one's Job is created: two attempts never run at once, whatever became of their workers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from tidewheel.task.context import Context

#: How often the cluster is asked.
ASK_S = 1.0
#: What a pod gets between TERM and KILL, and how long its deletion may take beyond that.
GRACE_S = 10
GONE_S_MAX = 120.0
#: A pod writes its output there; Kubernetes keeps 4 KiB of it.
OUTPUT = "/dev/termination-log"
#: What cannot get better by waiting.
_HOPELESS = {"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}


class JobFailed(Exception):
    """The Job could not run, or its pod did not succeed."""


def run(
    context: Context,
    image: str,
    command: Sequence[Any] = (),
    entrypoint: Sequence[Any] = (),
    namespace: str = "default",
    service_account: str = "",
    memory: str = "",
    cpus: float | None = None,
    job: Mapping[str, Any] | None = None,
) -> Any:
    """Run the Job; its pod's termination message, if there is one, is the output and must be JSON.

    ``job`` is merged over the manifest. A pod that ends with an exit status ends this process with it. Raises
    ``JobFailed``.
    """
    connect()
    labels = labels_of(context)
    container = container_of(context.env, image, words(command), words(entrypoint), memory, cpus)
    manifest = merged(manifest_of(context, labels, container, service_account), job or {})
    name = manifest["metadata"]["name"]
    follower = Job(namespace, name, labels)
    follower.clear_earlier(context.attempt)
    try:
        follower.create(manifest)
        return follower.follow(context)
    finally:
        # Also at a stop, which comes as ``SystemExit``: the attempt has ended when its pod is gone.
        follower.delete(name)


def connect() -> None:
    """Find the cluster: that of the pod this runs in, else the kubeconfig's. Raises ``JobFailed``."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except ConfigException:
        try:
            config.load_kube_config()  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise JobFailed(f"no Kubernetes cluster is configured for this worker: {error}") from None


def labels_of(context: Context) -> dict[str, str]:
    """Whose the Job is, in the few characters that a label may have."""
    return {
        "app.kubernetes.io/managed-by": "tidewheel",
        "tidewheel/task": hashlib.sha256(context.idempotency_key.encode()).hexdigest()[:20],
        "tidewheel/attempt": str(context.attempt),
    }


def words(given: Sequence[Any]) -> list[str]:
    """The words of a command; what an expression gave is written as JSON."""
    return [word if isinstance(word, str) else json.dumps(word) for word in given]


def container_of(
    env: Mapping[str, str], image: str, command: list[str], entrypoint: list[str], memory: str, cpus: float | None
) -> dict[str, Any]:
    """The pod's container."""
    variables = {**env, "TIDEWHEEL_OUTPUT": OUTPUT}
    limits = {name: value for name, value in (("memory", quantity(memory)), ("cpu", cpus and str(cpus))) if value}
    container: dict[str, Any] = {
        "name": "task",
        "image": image,
        "env": [{"name": name, "value": value} for name, value in sorted(variables.items())],
    }
    if entrypoint:
        container["command"] = entrypoint
    if command:
        container["args"] = command
    if limits:
        container["resources"] = {"limits": limits}
    return container


def manifest_of(
    context: Context, labels: Mapping[str, str], container: Mapping[str, Any], service_account: str
) -> dict[str, Any]:
    """The Job. The engine retries, so Kubernetes does not."""
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
    }
    if service_account:
        pod["serviceAccountName"] = service_account
    annotations = {
        "tidewheel/dag": context.dag,
        "tidewheel/run_id": context.run_id,
        "tidewheel/task_id": context.task,
    }
    described = {"labels": dict(labels), "annotations": annotations}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"tidewheel-{labels['tidewheel/task']}-{context.attempt}", **described},
        "spec": {
            "backoffLimit": 0,
            # Should nobody be left to delete it.
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": described, "spec": pod},
        },
    }


def quantity(memory: str) -> str:
    """``512m`` as Kubernetes writes it: there it would be half a byte."""
    units = {"k": "Ki", "m": "Mi", "g": "Gi", "b": ""}
    return memory[:-1] + units[memory[-1]] if memory and memory[-1] in units else memory


def merged(manifest: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``manifest``: mappings key by key, all else replaced; the first containers are one."""
    result = dict(manifest)
    for key, value in over.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        elif key == "containers" and isinstance(before, list) and isinstance(value, list) and value:
            result[key] = [merged(before[0], value[0]), *value[1:]]
        else:
            result[key] = value
    return result


class Job:
    """One Job in the cluster."""

    def __init__(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        self._namespace = namespace
        self._name = name
        self._labels = labels
        # The library's types know nothing of what is optional.
        self._jobs: Any = client.BatchV1Api()
        self._pods: Any = client.CoreV1Api()
        self._said_until = ""

    def clear_earlier(self, attempt: int) -> None:
        """Delete what earlier attempts left, and wait until it is gone."""
        selector = f"tidewheel/task={self._labels['tidewheel/task']}"
        for found in self._jobs.list_namespaced_job(self._namespace, label_selector=selector).items:
            if int(found.metadata.labels["tidewheel/attempt"]) < attempt:
                self.delete(found.metadata.name)

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create it. One of this very attempt is there already when the answer to its creation was lost."""
        try:
            self._jobs.create_namespaced_job(self._namespace, manifest)
        except ApiException as error:
            if error.status != 409:
                raise JobFailed(f"the cluster refuses the Job: {reason_of(error)}") from None

    def delete(self, name: str) -> None:
        """Delete a Job and wait until its pods are gone."""
        options = client.V1DeleteOptions(propagation_policy="Foreground")
        deadline = time.monotonic() + GRACE_S + GONE_S_MAX
        if not patiently(lambda: self._jobs.delete_namespaced_job(name, self._namespace, body=options)):
            return
        while patiently(lambda: self._jobs.read_namespaced_job(name, self._namespace)):
            if time.monotonic() > deadline:
                raise JobFailed(f"Job {name} is still there {GONE_S_MAX:g} s after its deletion")
            time.sleep(ASK_S)

    def follow(self, context: Context) -> Any:
        """Show the log until the Job has ended; gives the output."""
        shown = ""
        while True:
            pod = self._pod()
            phase = "" if pod is None else pod.status.phase
            if phase != shown:
                shown = phase
                context.heartbeat({"pod": phase})
            if pod is not None and phase in ("Running", "Succeeded", "Failed"):
                self._copy_log(context, pod.metadata.name)
            if pod is not None and phase in ("Succeeded", "Failed"):
                return self._result(self._pod() or pod)
            if pod is not None:
                check_waiting(pod)
            self._check_job()
            time.sleep(ASK_S)

    def _pod(self) -> Any:
        selector = ",".join(f"{name}={self._labels[name]}" for name in ("tidewheel/task", "tidewheel/attempt"))
        answer = patiently(lambda: self._pods.list_namespaced_pod(self._namespace, label_selector=selector))
        return answer.items[0] if answer is not None and answer.items else None

    def _check_job(self) -> None:
        """A Job may fail without a pod: no quota, or it was deleted."""
        job = patiently(lambda: self._jobs.read_namespaced_job(self._name, self._namespace))
        if job is None:
            raise JobFailed(f"Job {self._name} was deleted by somebody else")
        for condition in job.status.conditions or ():
            if condition.type == "Failed" and condition.status == "True" and self._pod() is None:
                raise JobFailed(f"{condition.reason}: {condition.message}")

    def _copy_log(self, context: Context, pod: str) -> None:
        """Print what the pod writes until it ends, or the connection does; each line once."""
        try:
            stream = self._pods.read_namespaced_pod_log(
                pod, self._namespace, follow=True, timestamps=True, _preload_content=False
            )
            for line in lines_of(stream.stream(decode_content=True)):
                stamp, _, text = line.partition(" ")
                # Whoever asks again is told all of it again.
                if stamp > self._said_until:
                    self._said_until = stamp
                    context.log(text)
        except (ApiException, HTTPError):
            # The next round asks again.
            return

    def _result(self, pod: Any) -> Any:
        ended = [status.state.terminated for status in pod.status.container_statuses or () if status.name == "task"]
        if not ended or ended[0] is None:
            raise JobFailed(f"the pod ended without running: {pod.status.reason or 'no reason is given'}")
        end = ended[0]
        if pod.status.phase == "Succeeded" or end.exit_code == 0:
            return json.loads(end.message) if end.message and end.message.strip() else None
        if end.reason == "OOMKilled":
            raise JobFailed("the pod was killed: it took more memory than its limit")
        raise SystemExit(end.exit_code)


def check_waiting(pod: Any) -> None:
    """Raises ``JobFailed`` for a pod that waits for what will not come."""
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason in _HOPELESS:
            raise JobFailed(f"the pod cannot start: {waiting.reason}: {waiting.message}")


def patiently(ask: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """The cluster's answer, None if it knows of no such thing; asked again while its server is away or busy."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return ask()
        except ApiException as error:
            if error.status == 404:
                return None
            if error.status not in (429, 500, 502, 503, 504) or time.monotonic() > deadline:
                raise JobFailed(f"the cluster answers: {reason_of(error)}") from None
        except HTTPError as error:
            if time.monotonic() > deadline:
                raise JobFailed(f"the cluster does not answer: {error}") from None
        time.sleep(ASK_S)


def reason_of(error: ApiException) -> str:
    """What the server says, for people."""
    try:
        return f"{error.status}: {json.loads(error.body or '')['message']}"
    except (TypeError, ValueError, KeyError):
        return f"{error.status}: {error.reason}"


def lines_of(pieces: Iterator[bytes]) -> Iterator[str]:
    """Whole lines of a stream."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
