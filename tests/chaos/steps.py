"""The named steps at which a scheduler can be struck, found by what it says to the broker.

Inside its transaction means: the broker has answered that partitions are part of it, and no commit has reached it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.chaos.site import PREFIX
from tidewheel.log.interface import SNAPSHOTS
from tidewheel.testing.kafka_frames import Api, Request, commits


class Step(msgspec.Struct, frozen=True):
    """``wanted`` is held as it passes, or the answer to it; then the scheduler is struck."""

    wanted: Callable[[Request], bool]
    answer: bool
    inside: bool


def _of_scheduler(api: Api) -> Callable[[Request], bool]:
    return lambda request: request.api == api and request.transactional_id.startswith(PREFIX)


def is_commit(request: Request) -> bool:
    """Whether a scheduler asks for its transaction to be committed."""
    return _of_scheduler(Api.END_TXN)(request) and commits(request)


def _writes_checkpoint(request: Request) -> bool:
    return _of_scheduler(Api.PRODUCE)(request) and (PREFIX + SNAPSHOTS).encode() in request.body


def begins(transactional_id: str) -> Callable[[Request], bool]:
    """A request that a transaction of this name makes when it already has partitions."""
    return lambda request: request.api == Api.ADD_OFFSETS_TO_TXN and request.transactional_id == transactional_id


def recovers(scheduler: str) -> Callable[[Request], bool]:
    """A scheduler reads journals or snapshots to learn the state of its shards."""
    return lambda request: request.api == Api.FETCH and request.client == scheduler


STEPS = {
    "begun": Step(_of_scheduler(Api.ADD_PARTITIONS_TO_TXN), answer=True, inside=True),
    "produced": Step(_of_scheduler(Api.PRODUCE), answer=True, inside=True),
    "offsets": Step(_of_scheduler(Api.TXN_OFFSET_COMMIT), answer=True, inside=True),
    "committing": Step(is_commit, answer=False, inside=True),
    "committed": Step(is_commit, answer=True, inside=False),
    "checkpoint": Step(_writes_checkpoint, answer=True, inside=True),
}


def scheduler_of(request: Request) -> str:
    """Whose transaction this is."""
    return request.transactional_id.removeprefix(PREFIX)
