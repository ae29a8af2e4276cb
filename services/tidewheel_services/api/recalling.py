"""Changing a run that its DAG does not keep any more: the read model says what it came to, and the DAG checks that."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool

from tidewheel.core.commands import ClearTasks, MarkTask
from tidewheel.core.mail import Reply
from tidewheel.core.recall import RECALLED_BYTES_MAX, CannotRecall, Recalled, recall
from tidewheel_projections import reads
from tidewheel_projections.history import TooLarge, get_definition, list_run_history
from tidewheel_services.api.problems import Problem
from tidewheel_services.api.services import Services


async def ask_of_run(api: Services, command: ClearTasks | MarkTask, again: str) -> Reply:
    """As ``Services.ask``. If the run is not kept, the command is sent once more with what the run came to."""
    reply = await api.reply(command, again)
    if reply.code != "not_kept":
        return await api.accepted(command, reply, again)
    try:
        said = await run_in_threadpool(api.reads.read, partial(_recall, dag=command.dag, run_id=command.run_id))
    except CannotRecall as error:
        rerun = f"`tidewheel rerun {command.dag} {command.run_id}` repeats it as a new run"
        detail = f"run {command.run_id} is not kept by its DAG and can not be recalled: {error}; {rerun}"
        raise Problem("conflict", detail) from error
    return await api.ask(replace(command, recalled=said.run, definition=said.definition), again)


def _recall(connection: reads.Connection, *, dag: str, run_id: str) -> Recalled:
    events = list_run_history(connection, dag, run_id, RECALLED_BYTES_MAX)
    try:
        return recall(dag, events, partial(get_definition, connection, dag))
    except TooLarge as error:
        raise CannotRecall(str(error)) from error
