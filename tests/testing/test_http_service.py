"""The server of other tests: what is asked, what is answered, and what its own faults come to."""

from __future__ import annotations

import threading

import httpx
import pytest

from tests.http_service import Answer, Request, http_service, in_json


def test_it_is_asked_and_answers() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return in_json({"rows": 3}, status=201)

    with http_service(answer) as url:
        said = httpx.post(f"{url}/a?b=c", content="body", headers={"X-Token": "t"})
    assert (said.status_code, said.json()) == (201, {"rows": 3})
    (request,) = asked
    assert (request.method, request.path, request.headers["x-token"], request.body) == ("POST", "/a?b=c", "t", b"body")
    assert not [one for one in threading.enumerate() if one.name == "http-service"]


def test_who_gets_no_answer_sees_the_end_of_the_connection() -> None:
    with http_service(lambda _: None) as url, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(url)


def test_a_fault_of_the_answer_fails_the_test_it_is_for() -> None:
    def answer(_: Request) -> Answer:
        raise KeyError("no such answer")

    with pytest.raises(KeyError, match="no such answer"), http_service(answer) as url:
        assert httpx.get(url).status_code == 500
