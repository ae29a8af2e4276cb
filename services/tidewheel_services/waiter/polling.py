"""One look at what a task waits for: the request, the answer, and whether it is as wanted."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from typing import Any, Final

import httpx
import msgspec

from tidewheel.core.assignment import HttpSpec
from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.core.rules import OUTPUT_BYTES_MAX
from tidewheel.worker.attempt import StopReason
from tidewheel.worker.secrets import Secrets, SecretUnavailable, resolve_all
from tidewheel_services.worker.http import text_of
from tidewheel_services.worker.line import Cut, Line

#: Waiting for a connection, for the next bytes, and for the whole: some services answer a byte at a time.
CONNECT_S: Final = 10.0
READ_S: Final = 30.0
LOOK_S: Final = 60.0
#: Of an answer, as much is looked at; a larger one is not what is wanted.
BODY_BYTES_MAX: Final = 1_048_576


class Polled(msgspec.Struct, frozen=True):
    """What an ``http`` wait asks for, as the scheduler wrote it down when the wait began."""

    request: HttpSpec
    every_ms: int
    until: str | None = None
    run: dict[str, Any] = msgspec.field(default_factory=dict)
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)


class Came(msgspec.Struct, frozen=True):
    """The answer is as wanted; ``output`` is the task's."""

    output: str


class NotYet(msgspec.Struct, frozen=True):
    """It is not, for ``reason``; another look may help."""

    reason: str


class Hopeless(msgspec.Struct, frozen=True):
    """No look will ever help."""

    reason: str


Look = Came | NotYet | Hopeless


class Poller:
    """Makes the requests; safe to use from several threads."""

    def __init__(self, secrets: Secrets, evaluator: Evaluator) -> None:
        self._secrets = secrets
        self._evaluator = evaluator
        # Loading the certificates takes longer than a request.
        self._tls = ssl.create_default_context()
        self._lines: set[Line] = set()
        self._lines_lock = threading.Lock()

    def cut(self) -> None:
        """End the requests under way; their looks give that there was no answer."""
        with self._lines_lock:
            for line in self._lines:
                line.stop(StopReason.GIVE_UP)

    def look(self, polled: Polled) -> Look:
        """Ask once."""
        request = polled.request
        try:
            headers = resolve_all(request.headers, self._secrets)
        except SecretUnavailable as error:
            return Hopeless(str(error))
        try:
            with (
                self._line() as line,
                httpx.Client(
                    verify=self._tls, timeout=httpx.Timeout(READ_S, connect=CONNECT_S), follow_redirects=True
                ) as client,
                client.stream(
                    request.method, request.url, headers=headers, extensions={"trace": line.trace}
                ) as response,
            ):
                return self._judged(polled, response, _body(response))
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as error:
            return Hopeless(f"the request cannot be made: {error}")
        except Cut:
            return NotYet(f"no whole answer within {LOOK_S:g} s")
        except httpx.HTTPError as error:
            return NotYet(f"no answer: {error or type(error).__name__}")

    @contextlib.contextmanager
    def _line(self) -> Iterator[Line]:
        """The line of one request, cut after ``LOOK_S``; whatever its cutting leads to is a ``Cut``."""
        line = Line()
        clock = threading.Timer(LOOK_S, line.stop, (StopReason.TIMEOUT,))
        clock.daemon = True
        clock.start()
        with self._lines_lock:
            self._lines.add(line)
        try:
            yield line
        except httpx.HTTPError:
            if line.stopped:
                raise Cut from None
            raise
        finally:
            clock.cancel()
            with self._lines_lock:
                self._lines.discard(line)

    def _judged(self, polled: Polled, response: httpx.Response, body: bytes) -> Look:
        if len(body) > BODY_BYTES_MAX:
            return NotYet(f"the answer has more than {BODY_BYTES_MAX:,} bytes")
        names = _names(response, body)
        if polled.until is None:
            wanted = 200 <= response.status_code < 300
        else:
            scope = Scope(inputs=polled.inputs, run=polled.run, task=lambda name: {}, names={"response": names})
            try:
                wanted = self._evaluator.condition(polled.until, scope)
            except ExpressionError as error:
                return NotYet(self._secrets.masker.mask(f"answered {response.status_code}; {error}"))
        if not wanted:
            return NotYet(f"answered {response.status_code}")
        return Came(self._secrets.masker.mask(_output(names)))


def _body(response: httpx.Response) -> bytes:
    """The body, or a byte more than is looked at."""
    data = bytearray()
    for piece in response.iter_bytes():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            break
    return bytes(data)


def _names(response: httpx.Response, body: bytes) -> dict[str, Any]:
    """The answer as expressions know it by ``response``; ``json`` is null if it is none."""
    text = text_of(body, response.charset_encoding)
    value = None
    if "json" in response.headers.get("content-type", ""):
        try:
            value = msgspec.json.decode(body) if body else None
        except (msgspec.DecodeError, ValueError, RecursionError):
            value = None
    return {"status": response.status_code, "headers": dict(response.headers), "json": value, "text": text}


def _output(names: dict[str, Any]) -> str:
    """The output of the task: as of an ``http`` task, and without a body that is too large for one."""
    kept = {key: names[key] for key in ("status", "headers", "text" if names["json"] is None else "json")}
    output = msgspec.json.encode(kept).decode()
    if len(output.encode()) <= OUTPUT_BYTES_MAX:
        return output
    return msgspec.json.encode({"status": names["status"], "headers": {}}).decode()
