"""The OpenAPI document is whole, and whatever one sends, the answer is one it promises."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewheel.log.interface import Log

METHODS = ("get", "post", "put", "delete")


@pytest.fixture(scope="module")
def api(start_api, engine: Log, projected: str) -> httpx.Client:
    return start_api(engine, projected, answer_s=0.5)


@pytest.fixture(scope="module")
def document(api: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    paths = document["paths"].items()
    return [(method, path, operation) for path, methods in paths for method, operation in methods.items()]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references
    assert references <= set(document["components"]["schemas"])


def test_every_operation_says_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    assert len(operations(document)) >= 28
    for method, path, operation in operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        assert operation["tags"], where
        assert "application/problem+json" in operation["responses"]["default"]["content"], where
        assert "422" not in operation["responses"], f"{where}: the framework's own error shape"
        success = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        assert success, where
        assert all(answer["content"] for answer in success), where
        for parameter in operation.get("parameters", []):
            assert parameter.get("description") or parameter["in"] == "header", f"{where}: {parameter['name']}"
        body = operation.get("requestBody", {}).get("content", {})
        assert all("example" in content for content in body.values()), where


def test_every_read_can_wait_for_a_position(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        if method == "get" and path.startswith("/api/"):
            assert "position" in {parameter["name"] for parameter in operation["parameters"]}, path


def test_examples_of_bodies_are_accepted(api: httpx.Client, document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            address = re.sub(r"\{\w+\}", "hello", path)
            example = content["example"]
            text = example if isinstance(example, str) else json.dumps(example)
            answer = api.request(method.upper(), address, content=text, headers={"Content-Type": media_type})
            # The example's DAG or input may not be there; but the body is of the right shape.
            errors = answer.json().get("errors", [])
            assert answer.status_code < 500, (method, path, answer.text)
            assert not [error for error in errors if str(error.get("where")).startswith("body")], answer.text


def test_the_documentation_page_is_there(api: httpx.Client) -> None:
    assert "swagger" in api.get("/docs").text


PATHS = [
    "/api/v1/dags/{}",
    "/api/v1/dags/{}/versions/{}",
    "/api/v1/dags/{}/runs/{}/tasks/{}/attempts/{}/logs",
    "/api/v1/pools/{}/tasks",
    "/{}",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(min_size=1, max_size=30) | st.sampled_from(["hello", "..", ".", "%", "%2F", "a/b", "1", "0"])
QUERIES = st.dictionaries(
    st.sampled_from(["limit", "after", "state", "since", "position", "tag", "search", "follow", "x"]),
    st.text(max_size=20) | st.integers().map(str),
    max_size=3,
)
FIELDS = st.sampled_from(["run_id", "inputs", "reason", "slots", "description", "definition", "x"])


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        document = answer.json()
        assert document["status"] == answer.status_code
        assert document["type"].startswith("urn:tidewheel:problem:")
        assert document["detail"]


@given(path=st.sampled_from(PATHS), names=st.lists(NAMES, min_size=4, max_size=4), query=QUERIES)
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_address_breaks_it(api: httpx.Client, path: str, names: list[str], query: dict[str, str]) -> None:
    quoted = [quote(name.encode("utf-8", "surrogatepass"), safe="") for name in names]
    if query.get("position", "").startswith("events/"):
        query.pop("position")
    check(api.get(path.format(*quoted), params=query))


@given(
    target=st.sampled_from(
        [
            ("POST", "/api/v1/dags"),
            ("POST", "/api/v1/dags/hello/runs"),
            ("POST", "/api/v1/dags/hello/pause"),
            ("POST", "/api/v1/dags/hello/runs/r/cancel"),
            ("POST", "/api/v1/dags/hello/runs/r/clear"),
            ("POST", "/api/v1/dags/hello/runs/r/rerun"),
            ("POST", "/api/v1/dags/hello/runs/r/tasks/t/mark"),
            ("PUT", "/api/v1/pools/default"),
        ]
    ),
    body=st.dictionaries(FIELDS, JSON, max_size=4) | JSON,
)
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_body_breaks_it(api: httpx.Client, target: tuple[str, str], body: Any) -> None:
    method, path = target
    check(api.request(method, path, content=json.dumps(body), headers={"Content-Type": "application/json"}))


@given(data=st.binary(max_size=200), media_type=st.sampled_from(["application/json", "application/yaml", "text/plain"]))
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_bytes_break_it(api: httpx.Client, data: bytes, media_type: str) -> None:
    check(api.post("/api/v1/dags", params={"validate": "true"}, content=data, headers={"Content-Type": media_type}))
