"""A small client of the API: JSON in and out, problem documents as errors, pages as one sequence."""

from __future__ import annotations

import getpass
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.config import Settings

if TYPE_CHECKING:
    import httpx

#: Longer than the API itself waits for an answer.
_TIMEOUT_S = 30.0
_PAGE = 1000
_PREFIX = "/api/v1"
#: Where in a request a mistake lies; on the command line there is no body and no query.
_PLACE = re.compile(r"(^|; )(?:body|query|path)\.")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._@+-]+")


class Refused(CliError):
    """The API answered with a problem document: ``kind`` is its code, ``errors`` the single mistakes it names."""

    def __init__(self, message: str, code: int, kind: str, status: int, errors: list[dict[str, Any]]) -> None:
        super().__init__(message, code)
        self.kind = kind
        self.status = status
        self.errors = errors


class Listed(NamedTuple):
    """Entries of a list; ``after``: where it goes on, None at its end."""

    items: list[Any]
    after: str | int | None


class Client:
    """The API at ``settings.api``, asked by ``actor`` (else the user of this machine). Everything raises
    ``CliError``."""

    def __init__(self, settings: Settings, *, actor: str = "", timeout_s: float = _TIMEOUT_S) -> None:
        import httpx

        self._base = settings.api
        self._timeout_s = timeout_s
        headers = {"X-Tidewheel-Actor": actor or _user()}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        try:
            self._http = httpx.Client(
                base_url=self._base + _PREFIX,
                headers=headers,
                timeout=timeout_s,
                # A proxy of the environment is not asked for this very machine.
                trust_env=not _is_local(self._base),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise CliError(f"the API's address {self._base!r} is no URL: {error}", UNREACHABLE) from error

    def __enter__(self) -> Client:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the connection."""
        self._http.close()

    def get(self, *path: str, position: str = "", **params: object) -> Any:
        """What is at the path; ``position`` waits until the read model has come that far."""
        headers = {"X-Tidewheel-Position": position} if position else {}
        given = {name: value for name, value in params.items() if value is not None}
        return self._send("GET", path, params=given, headers=headers)

    def post(self, *path: str, body: Mapping[str, object]) -> Any:
        """The answer to a write."""
        return self._send("POST", path, json=dict(body))

    def put(self, *path: str, body: Mapping[str, object]) -> Any:
        """The answer to a write."""
        return self._send("PUT", path, json=dict(body))

    def delete(self, *path: str, **params: object) -> Any:
        """The answer to a removal."""
        return self._send("DELETE", path, params=params)

    def pages(self, *path: str, limit: int, position: str = "", **params: Any) -> Iterator[Any]:
        """At most ``limit`` items, fetched page by page."""
        for page in self._pages(path, limit, None, position=position, **params):
            yield from page["items"]

    def listed(self, *path: str, limit: int, after: str | None = None, **params: Any) -> Listed:
        """At most ``limit`` items behind ``after``, and where the list goes on."""
        items: list[Any] = []
        for page in self._pages(path, limit, after, **params):
            items += page["items"]
            after = page["next"]
        return Listed(items, after)

    def _pages(
        self, path: tuple[str, ...], limit: int, after: str | None, *, position: str = "", **params: Any
    ) -> Iterator[Any]:
        while limit > 0:
            page = self.get(*path, position=position, limit=min(limit, _PAGE), after=after, **params)
            yield page
            limit -= len(page["items"])
            after = page["next"]
            if after is None:
                return

    def _send(self, method: str, path: tuple[str, ...], **arguments: Any) -> Any:
        import httpx

        url = "/" + "/".join(quote(step, safe="") for step in path)
        try:
            response = self._http.request(method, url, **arguments)
        except httpx.ConnectError as error:
            raise CliError(
                f"no API answers at {self._base} ({error}). Start one with `tidewheel dev DIR` or `tidewheel api`, "
                "or say where it is with --api or TIDEWHEEL_API",
                UNREACHABLE,
            ) from error
        except httpx.TimeoutException as error:
            told = f"the API at {self._base} did not answer within {self._timeout_s:g} s"
            raise CliError(told, UNREACHABLE) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CliError(f"the API at {self._base}: {error}", UNREACHABLE) from error
        return self._read(response)

    def _read(self, response: httpx.Response) -> Any:
        try:
            document = response.json()
        except ValueError:
            raise CliError(
                f"{self._base} answered {response.status_code} and no JSON: is that a Tidewheel API?", UNREACHABLE
            ) from None
        if response.is_success:
            return document
        if not isinstance(document, dict) or "detail" not in document:
            raise CliError(f"{self._base} answered {response.status_code}: is that a Tidewheel API?", UNREACHABLE)
        kind = str(document.get("type", "")).rpartition(":")[2]
        status = response.status_code
        code = UNREACHABLE if status >= 500 or status == 401 else REFUSED
        detail = str(document["detail"])
        if kind == "invalid":
            detail = _PLACE.sub(r"\1", detail)
        raise Refused(detail, code, kind, status, list(document.get("errors", [])))


def _user() -> str:
    try:
        name = _NOT_IN_A_NAME.sub("-", getpass.getuser()).strip("-.")[:100]
    except (KeyError, OSError, ImportError):
        name = ""
    return name or "somebody"


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
