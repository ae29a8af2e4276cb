"""HTTP requests. The output is ``{"status", "headers", "json" | "text"}``; redirects are followed.

A request that is not a GET or HEAD carries ``Idempotency-Key: dag/run_id/task`` unless the task sets one: a service
that understands it then does a thing once, however often the engine has to try.
"""

from __future__ import annotations

import ssl

import httpx
import msgspec

from tidewheel.core.assignment import ActionSpec, HttpSpec
from tidewheel.task.outcome import OUTPUT_BYTES_MAX, Failed, Outcome, outcome_of
from tidewheel.worker.attempt import Attempt
from tidewheel.worker.masking import Masker
from tidewheel.worker.secrets import Secrets, SecretUnavailable, resolve_all
from tidewheel_services.worker.line import Cut, Line

#: Waiting for a connection, and for the next bytes; the task's ``timeout`` bounds the whole.
CONNECT_S = 10.0
READ_S = 300.0
#: What a message shows of an unexpected answer.
EXCERPT_CHARS = 500
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Http:
    """The executor of ``http`` actions."""

    killable = True

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        # Loading the certificates takes longer than a request.
        self._tls = ssl.create_default_context()

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        """Send the request and read the answer."""
        assert isinstance(action, HttpSpec)
        try:
            headers = resolve_all(action.headers, self._secrets)
        except SecretUnavailable as error:
            return Failed("setup", str(error))
        mail = attempt.assignment
        if action.method.upper() not in _SAFE_METHODS and not any(
            name.lower() == "idempotency-key" for name in headers
        ):
            headers["Idempotency-Key"] = f"{mail.dag}/{mail.run_id}/{mail.task}"
        line = Line()
        attempt.attach(line)
        timeouts = httpx.Timeout(READ_S, connect=CONNECT_S)
        try:
            # A client of its own for each request: its one connection can be cut without harm to others.
            with (
                httpx.Client(verify=self._tls, timeout=timeouts, follow_redirects=True) as client,
                client.stream(
                    action.method.upper(),
                    action.url,
                    headers=headers,
                    content=_content(action, headers),
                    extensions={"trace": line.trace},
                ) as response,
            ):
                return _outcome(action, response, _body(response), self._secrets.masker)
        except Cut:
            return Failed("http_error", "the request was ended")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as error:
            return Failed("setup", f"the request cannot be made: {error}")
        except httpx.TimeoutException as error:
            return Failed("http_error", f"no answer from {_place(action.url)} in time: {type(error).__name__}")
        except httpx.HTTPError as error:
            return Failed("http_error", f"no answer from {_place(action.url)}: {error or type(error).__name__}")
        finally:
            attempt.detach()

    def close(self) -> None:
        """Nothing to let go of."""


def _content(action: HttpSpec, headers: dict[str, str]) -> bytes | None:
    if action.body is not None:
        return action.body.encode()
    if action.json is None:
        return None
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    return msgspec.json.encode(action.json)


def _body(response: httpx.Response) -> bytes:
    """The answer's body, as much of it as could be an output and a byte more."""
    data = bytearray()
    for piece in response.iter_bytes():
        data += piece
        if len(data) > OUTPUT_BYTES_MAX:
            break
    return bytes(data)


def text_of(body: bytes, charset: str | None) -> str:
    """The body as text: by UTF-8 where no charset is named, or one in which no text is written."""
    try:
        text = body.decode(charset or "utf-8", "replace")
        # Not every name is that of a charset: some codecs of Python raise whatever they are given, or give half pairs.
        text.encode()
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace")
    return text


def _outcome(action: HttpSpec, response: httpx.Response, body: bytes, masker: Masker) -> Outcome:
    text = text_of(body, response.charset_encoding)
    status = response.status_code
    if status not in action.expect if action.expect else not 200 <= status < 300:
        wanted = ", ".join(map(str, action.expect)) or "200 to 299"
        # Masked before it is cut: half a secret would not be recognised.
        excerpt = f": {masker.mask(text)[:EXCERPT_CHARS]}" if text.strip() else ""
        message = f"{_place(action.url)} answered {status}, expected {wanted}{excerpt}"
        return Failed("http_status", message, http_status=status)
    if len(body) > OUTPUT_BYTES_MAX:
        size = response.headers.get("content-length", f"more than {OUTPUT_BYTES_MAX}")
        return Failed(
            "output",
            f"the answer has {size} bytes; an output may have {OUTPUT_BYTES_MAX}: fetch it in a task that stores it",
        )
    output: dict[str, object] = {"status": status, "headers": dict(response.headers)}
    if "json" in response.headers.get("content-type", ""):
        try:
            output["json"] = msgspec.json.decode(body) if body else None
        except (msgspec.DecodeError, ValueError, RecursionError):
            output["text"] = text
    else:
        output["text"] = text
    return outcome_of(output)


def _place(url: str) -> str:
    """The URL without what may be private in it: user, password and query."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return "the URL"
    return f"{parsed.scheme}://{parsed.host}{f':{parsed.port}' if parsed.port else ''}{parsed.path}"
