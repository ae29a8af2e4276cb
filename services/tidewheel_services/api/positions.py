"""Read your writes: a read that names a journal position waits until the read model has come that far."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.concurrency import run_in_threadpool

from tidewheel.log.interface import LogError
from tidewheel_projections.reads import get_position, list_positions, parse_position
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.services import POSITION_HEADER, Services, services

#: Longest wait; beyond it the client asks again.
WAIT_S = 5.0
#: Between two looks; grows, so that a long lag costs little.
LOOK_S = (0.01, 0.1)
_EXAMPLE = "events/3/1207"

Position = tuple[str, int, int]


def parse(text: str, partitions: int) -> Position:
    """``topic/partition/shard_seq``. Raises ``Problem`` naming what is wrong."""
    try:
        topic, partition, shard_seq = parse_position(text.strip())
        if partition < partitions and shard_seq < 2**62:
            return topic, partition, shard_seq
        wrong = f"'{text}' is no journal position: the log has {partitions} partitions, counted from 0"
    except ValueError as error:
        wrong = str(error)
    detail = f"{wrong[:300]}; take it from the {POSITION_HEADER} header of a write"
    raise Problem("invalid", detail, errors=[{"where": "query.position", "code": "position", "message": wrong[:300]}])


async def reached(
    request: Request,
    position: Annotated[
        str | None,
        Query(
            description="Wait (at most 5 s) until the read model has reached this journal position.",
            examples=[_EXAMPLE],
        ),
    ] = None,
    header: Annotated[str | None, Header(alias=POSITION_HEADER, description="The same as `position`.")] = None,
) -> None:
    """A dependency of every read."""
    given = position or header
    if given:
        api = services(request)
        try:
            partitions = api.log.partitions
        except LogError as error:
            raise Problem("log_unavailable", str(error), retry_after_s=2) from error
        await wait(api, [parse(text, partitions) for text in given.split(",")[:64]])


async def wait(api: Services, positions: Iterable[Position]) -> None:
    """Wait until the read model has reached every position. Raises ``Problem`` after ``WAIT_S``."""
    deadline = time.monotonic() + WAIT_S
    for topic, partition, shard_seq in positions:
        pause = LOOK_S[0]
        while (seen := await run_in_threadpool(_seen, api, topic, partition)) < shard_seq:
            if api.stopping.is_set():
                raise Problem("stopping", "this API process is stopping; ask again", retry_after_s=1)
            if time.monotonic() > deadline:
                stopped = await run_in_threadpool(_stopped, api, topic, partition)
                detail = (
                    f"the read model is at {topic}/{partition}/{seen}, {shard_seq - seen} events short of the position "
                    f"asked for; ask again, or without a position to read what is there{stopped}"
                )
                raise Problem("not_projected", detail, retry_after_s=1)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LOOK_S[1])


def _seen(api: Services, topic: str, partition: int) -> int:
    return api.reads.read(lambda connection: get_position(connection, topic, partition))


def _stopped(api: Services, topic: str, partition: int) -> str:
    """Why the read model follows the partition no further, if it does not."""
    for row in api.reads.read(list_positions):
        if (row.topic, row.partition) == (topic, partition) and row.stopped:
            return f". It follows this partition no further: {row.stopped}"
    return ""
