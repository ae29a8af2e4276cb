"""Who may talk to the API: a fresh install must not run what a stranger or a web page posts."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from tidewheel.log.memory import MemoryLog
from tidewheel_services.api.guard import BODY_BYTES_MAX
from tidewheel_services.api.main import CannotServe, listen

WRITE = "/api/v1/dags/hello/pause"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def open_api(start_api) -> httpx.Client:
    """An API without a token and without an engine: a write that gets past the guard times out with 504."""
    return start_api(MemoryLog(), answer_s=0.05)


@pytest.fixture(scope="module")
def locked_api(start_api) -> httpx.Client:
    """An API with a token."""
    return start_api(MemoryLog(), answer_s=0.05, token="s3cret-ünïcode")


def refused(answer: httpx.Response, status: int, kind: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    document = answer.json()
    assert document["type"] == f"urn:tidewheel:problem:{kind}"
    assert document["status"] == status
    assert document["detail"] and document["title"]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.10", "::", "example.org"])
def test_c126_a_fresh_install_cannot_be_reached_from_another_host(host: str) -> None:
    with pytest.raises(CannotServe, match=r"without a token.*TIDEWHEEL_TOKEN"):
        listen(host, 0)


def test_with_a_token_any_address_may_be_served() -> None:
    listener = listen("0.0.0.0", 0, token="s3cret")
    try:
        assert listener.getsockname()[0] == "0.0.0.0"
    finally:
        listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "127.0.0.1:8420", "[::1]:8420", "localhost:1"])
def test_loopback_names_are_answered(open_api: httpx.Client, host: str) -> None:
    assert open_api.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8420", "10.0.0.7", "a@localhost", "", "[x"],
)
def test_c126_a_rebound_name_is_refused(open_api: httpx.Client, host: str) -> None:
    """DNS rebinding: a page of evil.example, whose name now resolves to 127.0.0.1, is same-origin for the browser."""
    answer = open_api.post(WRITE, headers={"Host": host})
    refused(answer, 421, "foreign_host")
    assert "TIDEWHEEL_TOKEN" in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},  # another program's page on this machine
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", WRITE), ("POST", "/api/v1/dags"), ("PUT", "/api/v1/pools/p")])
def test_c126_a_page_of_another_site_can_write_nothing(
    open_api: httpx.Client, method: str, path: str, headers: dict[str, str]
) -> None:
    refused(open_api.request(method, path, headers=headers, content="id: x"), 403, "foreign_origin")


def test_a_page_of_our_own_can_write(open_api: httpx.Client) -> None:
    own = str(open_api.base_url).rstrip("/")
    answer = open_api.post(WRITE, headers={"Origin": own, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 504, "it went past the guard, and no scheduler answered"


def test_no_other_site_may_read(open_api: httpx.Client) -> None:
    answer = open_api.get("/health", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    preflight = open_api.options(
        WRITE, headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert preflight.status_code == 405
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("path", ["/health", "/ready", "/api/v1/health"])
def test_health_needs_no_token(locked_api: httpx.Client, path: str) -> None:
    assert locked_api.get(path).status_code in (200, 503)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/dags"),
        ("GET", "/api/v1/nothing"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/metrics"),
        ("POST", "/api/v1/dags"),
        ("POST", WRITE),
        ("DELETE", "/health"),
    ],
)
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", "Basic s3cret-ünïcode", "s3cret-ünïcode", "Bearer s3cret-ünïcod"],
)
def test_c126_with_a_token_all_else_needs_it(
    locked_api: httpx.Client, method: str, path: str, authorization: str | None
) -> None:
    if path == "/health":
        assert locked_api.request(method, path).status_code == 405
        return
    headers = {} if authorization is None else {b"Authorization": authorization.encode()}
    answer = locked_api.request(method, path, headers=headers)  # type: ignore[arg-type]
    refused(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_token_opens(locked_api: httpx.Client) -> None:
    headers = {b"Authorization": "bearer s3cret-ünïcode".encode()}
    assert locked_api.get("/openapi.json", headers=headers).status_code == 200  # type: ignore[arg-type]
    named = {**headers, b"Host": b"tidewheel.example.org"}
    assert locked_api.post(WRITE, headers=named).status_code == 504, "any host name will do with a token"  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/api/v1/dags/a%00b", "/api/v1/dags?owner=%00", "/%00"])
def test_a_nul_in_the_address_is_refused(open_api: httpx.Client, path: str) -> None:
    refused(open_api.get(path), 400, "malformed")


def test_a_body_over_its_bound_is_refused_before_it_is_read(open_api: httpx.Client) -> None:
    """Only the header is sent: the answer must come all the same."""
    with socket.create_connection((open_api.base_url.host, open_api.base_url.port or 0), timeout=5) as connection:
        head = f"POST /api/v1/dags HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES_MAX + 1}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_c085_a_chunked_body_over_its_bound_is_refused(open_api: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 65_536 + 1):
            yield b"x" * 65_536

    refused(
        open_api.post("/api/v1/dags", content=chunks(), headers={"Content-Type": "application/yaml"}), 413, "too_large"
    )
