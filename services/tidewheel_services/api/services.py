"""What the routes work with: the log, the read model, and the way a write is asked and answered."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Annotated

import msgspec
from fastapi import Depends, Header, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tidewheel.core import commands
from tidewheel.core.mail import Reply
from tidewheel.log.interface import Log
from tidewheel_services.api.database import ReadModel
from tidewheel_services.api.lag import LagWatch
from tidewheel_services.api.measures import Measures
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.requests import LogAway, NoAnswer, Requests, Stopping
from tidewheel_services.api.unknown import nearest_to_unknown_dag

POSITION_HEADER = "X-Tidewheel-Position"
ACTOR_HEADER = "X-Tidewheel-Actor"
_ACTOR = re.compile(r"(?:user:)?([A-Za-z0-9][A-Za-z0-9._@+-]{0,99})")
#: Runs take seconds at least; a caller who asks more often only adds to the load.
OVERLOADED_RETRY_S = 10
_REFUSALS = {"not_found": "not_found", "conflict": "conflict", "invalid": "invalid"}


@dataclass(frozen=True, slots=True)
class Services:
    """Made once for the application."""

    log: Log
    reads: ReadModel
    requests: Requests
    lag: LagWatch
    measures: Measures
    #: Set when the process ends: streams end themselves.
    stopping: asyncio.Event
    #: How long a write waits for its answer.
    answer_s: float

    async def ask(self, command: commands.Request, again: str, extra: dict[str, object] | None = None) -> Reply:
        """The answer to ``command``; a refusal or silence raises ``Problem``. ``again``: what asking again would do."""
        return await self.accepted(command, await self.reply(command, again, extra), again, extra)

    async def reply(self, command: commands.Request, again: str, extra: dict[str, object] | None = None) -> Reply:
        """The same, a refusal included; only silence raises ``Problem``."""
        try:
            return await self.requests.ask(command, self.answer_s)
        except NoAnswer as error:
            detail = (
                f"the request is on the log, but no scheduler answered within {self.answer_s:g} s; "
                f"it may still be carried out. {again}"
            )
            raise Problem("no_answer", detail, retry_after_s=2, extra=extra) from error
        except LogAway as error:
            sent = f" It may have been sent all the same. {again}" if error.sent else " Nothing was sent; try again."
            raise Problem("log_unavailable", f"{error}.{sent}", retry_after_s=2, extra=extra) from error
        except Stopping as error:
            detail = f"this API process is stopping; the request may still be carried out. {again}"
            raise Problem("stopping", detail, retry_after_s=2, extra=extra) from error

    async def accepted(
        self, command: commands.Request, reply: Reply, again: str, extra: dict[str, object] | None = None
    ) -> Reply:
        """The reply to ``command``. Raises ``Problem`` if it is a refusal."""
        if reply.code == "overloaded":
            raise Problem("overloaded", f"{reply.message}. {again}", retry_after_s=OVERLOADED_RETRY_S, extra=extra)
        if not reply.ok:
            told = (reply.message or "refused without a reason") + await self._hint(command, reply)
            raise Problem(_REFUSALS.get(reply.code, "conflict"), told, extra=extra)
        return reply

    async def _hint(self, command: commands.Request, reply: Reply) -> str:
        """The DAG that was probably meant: a shard knows only its own, the read model knows all."""
        dag = getattr(command, "dag", None)
        if reply.code != "not_found" or not isinstance(dag, str):
            return ""
        try:
            return await run_in_threadpool(self.reads.read, lambda connection: nearest_to_unknown_dag(connection, dag))
        except Problem:
            return ""


def services(request: Request) -> Services:
    """The application's services."""
    found: Services = request.app.state.services
    return found


async def _services(request: Request) -> Services:
    return services(request)


async def _actor(
    name: Annotated[
        str | None,
        Header(alias=ACTOR_HEADER, description="Who asks, for the record: a user name. Without it the actor is `api`."),
    ] = None,
) -> str:
    if name is None:
        return "api"
    match = _ACTOR.fullmatch(name)
    if match is None:
        raise Problem(
            "invalid",
            f"the header {ACTOR_HEADER} is a user name of letters, digits and . _ @ + -, at most 100 characters",
            errors=[{"where": f"header.{ACTOR_HEADER}", "code": "actor", "message": "not a user name"}],
        )
    return f"user:{match.group(1)}"


Api = Annotated[Services, Depends(_services)]
Actor = Annotated[str, Depends(_actor)]


def answer(content: object, status: int = 200, position: str = "") -> Response:
    """JSON as it is, with the position to read from."""
    headers = {POSITION_HEADER: position} if position else None
    return Response(msgspec.json.encode(content), status_code=status, headers=headers, media_type="application/json")
