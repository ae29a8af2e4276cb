"""A Kubernetes API server of a few lines: Jobs, their pods and logs, behaving as the tests say. No container runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.http_service import Answer, Request, http_service, in_json

#: What a pod is, one ask after another; the last one stays.
Story = list[dict[str, Any]]


def running() -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [status({"running": {}})]}


def ended(exit_code: int = 0, message: str = "", reason: str = "Completed") -> dict[str, Any]:
    phase = "Failed" if exit_code else "Succeeded"
    state = {"terminated": {"exitCode": exit_code, "message": message, "reason": reason}}
    return {"phase": phase, "containerStatuses": [status(state)]}


def waiting(reason: str, message: str) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [status({"waiting": {"reason": reason, "message": message}})]}


def status(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "task",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }


class Cluster:
    """``stories`` says what becomes of pods; ``jobs`` are those that exist, ``deleted`` those that did."""

    def __init__(self) -> None:
        self.stories: Story = [{"phase": "Pending"}, running(), ended()]
        self.log = "2026-01-01T00:00:00.000000001Z hello\n2026-01-01T00:00:00.000000002Z world\n"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.created: list[str] = []
        self.refuse: tuple[int, str] | None = None
        self.asked = 0
        self.lock = threading.Lock()

    @contextmanager
    def serve(self, kubeconfig: Path) -> Iterator[None]:
        with http_service(self._answer) as url:
            context = {"cluster": "c", "user": "u"}
            settings = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": context}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
            }
            kubeconfig.write_text(yaml.safe_dump(settings))
            yield

    # --- what is asked ------------------------------------------------------------------------------------------

    def create(self, job: dict[str, Any]) -> tuple[int, Any]:
        name = job["metadata"]["name"]
        if self.refuse is not None:
            return self.refuse[0], {"message": self.refuse[1]}
        if name in self.jobs:
            return 409, {"message": f"{name} exists"}
        self.jobs[name] = {**job, "status": {}}
        self.created.append(name)
        return 201, self.jobs[name]

    def delete(self, name: str) -> tuple[int, Any]:
        if self.jobs.pop(name, None) is None:
            return 404, {"message": "not found"}
        self.deleted.append(name)
        return 200, {"kind": "Status", "status": "Success"}

    def pods(self, selector: dict[str, str]) -> tuple[int, Any]:
        found = []
        for name, job in self.jobs.items():
            labels = job["spec"]["template"]["metadata"]["labels"]
            if selector.items() <= labels.items():
                status = self.stories[min(self.asked, len(self.stories) - 1)]
                self.asked += 1
                found.append({"metadata": {"name": f"{name}-pod", "labels": labels}, "status": status})
        return 200, {"kind": "PodList", "items": found}

    def listed(self, selector: dict[str, str]) -> tuple[int, Any]:
        found = [job for job in self.jobs.values() if selector.items() <= job["metadata"]["labels"].items()]
        return 200, {"kind": "JobList", "items": found}

    def _answer(self, request: Request) -> Answer:
        url = urlsplit(request.path)
        text = parse_qs(url.query).get("labelSelector", [""])[0]
        selector = dict(pair.split("=", 1) for pair in text.split(",") if pair)
        with self.lock:
            match request.method, url.path.strip("/").split("/"):
                case "POST", ["apis", "batch", "v1", "namespaces", _, "jobs"]:
                    code, answer = self.create(json.loads(request.body))
                case "GET", ["apis", "batch", "v1", "namespaces", _, "jobs"]:
                    code, answer = self.listed(selector)
                case "GET", ["apis", "batch", "v1", "namespaces", _, "jobs", name]:
                    found = self.jobs.get(name)
                    code, answer = (200, found) if found else (404, {"message": "not found"})
                case "DELETE", ["apis", "batch", "v1", "namespaces", _, "jobs", name]:
                    code, answer = self.delete(name)
                case "GET", ["api", "v1", "namespaces", _, "pods"]:
                    code, answer = self.pods(selector)
                case "GET", ["api", "v1", "namespaces", _, "pods", _, "log"]:
                    return Answer(200, self.log.encode())
                case _:
                    code, answer = 500, {"message": f"unknown: {request.method} {request.path}"}
        return in_json(answer, code)
