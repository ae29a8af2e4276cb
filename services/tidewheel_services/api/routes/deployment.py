"""Deploying a definition: checked here, in full, before anything is sent."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query, Request
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tidewheel.core.commands import DeployDag
from tidewheel.core.workflow import Workflow
from tidewheel.definition.canonical import canonical_json, version_of
from tidewheel.definition.load import load_text
from tidewheel.wire.rules import VALUE_BYTES_MAX
from tidewheel_projections import reads
from tidewheel_services.api import shapes
from tidewheel_services.api.body import YAML_TYPES, Body, json_of, media_type, text_of
from tidewheel_services.api.problems import Problem, invalid
from tidewheel_services.api.routes.routers import writer
from tidewheel_services.api.services import Actor, Api, Services, answer

write = writer("dags")

#: The command must fit into one record, with its other fields.
DEFINITION_BYTES_MAX = VALUE_BYTES_MAX - 4096

_POOLS_MAX = 10_000
#: How the linter names a pool that is probably meant.
_NEAR = "did you mean"

_EXAMPLE = 'id: hello\nschedule: "0 6 * * *"\ntasks:\n  - {id: hello, run: "echo hi"}\n'


class DeployBody(Body):
    """A workflow file to deploy."""

    definition: Annotated[
        str | dict[str, Any],
        Field(description="The workflow file: its text in YAML or JSON, or the same as a JSON object."),
    ]
    source: Annotated[
        str, Field(max_length=1000, description="Where it comes from, for the record and in mistakes.")
    ] = ""
    paused: Annotated[bool, Field(description="Deploy a new DAG paused.")] = False


_DOCUMENTED = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string"}, "example": _EXAMPLE},
            "application/json": {
                "schema": DeployBody.model_json_schema(),
                "example": {"definition": _EXAMPLE, "source": "dags/hello.yaml", "paused": False},
            },
        },
    }
}


@write.post(
    "/dags",
    summary="Deploy a DAG",
    responses={
        **shapes.gives(shapes.Deployed, "A new version is current.", 201),
        **shapes.gives(shapes.Deployed, "This version was current already; or, with `validate`, it has no mistakes."),
    },
    status_code=201,
    openapi_extra=_DOCUMENTED,
)
async def deploy_dag(
    request: Request,
    api: Api,
    actor: Actor,
    validate: Annotated[bool, Query(description="Only check the definition; deploy nothing.")] = False,
    source: Annotated[
        str, Query(max_length=1000, description="With a YAML body: where it comes from, as `source` in a JSON body.")
    ] = "",
    paused: Annotated[bool, Query(description="With a YAML body: deploy a new DAG paused.")] = False,
) -> Response:
    """Make a definition the current version of its DAG. Runs that have begun stay on theirs.

    All mistakes of the file are told in one answer (422), each with file, line and column. The same definition again,
    however it is formatted, makes no new version.
    """
    body = await _body(request, source, paused)
    text = body.definition if isinstance(body.definition, str) else msgspec.json.encode(body.definition).decode()
    workflow = await run_in_threadpool(_checked, api, text, body.source or "definition")
    version = version_of(workflow)
    if validate:
        return answer(shapes.Checked(dag=workflow.id, version=version))
    command = DeployDag(
        dag=workflow.id,
        actor=actor,
        version=version,
        definition=canonical_json(workflow),
        source=body.source,
        paused=body.paused,
    )
    size = len(command.definition.encode())
    if size > DEFINITION_BYTES_MAX:
        raise Problem(
            "too_large", f"the definition has {size:,} bytes in canonical form; the limit is {DEFINITION_BYTES_MAX:,}"
        )
    reply = await api.ask(command, "Deploying it again is safe: the same definition makes no second version.")
    content = shapes.Deployed(
        dag=workflow.id,
        version=version,
        created=reply.created,
        message=reply.message,
        position=reply.position,
    )
    return answer(content, 201 if reply.created else 200, reply.position)


async def _body(request: Request, source: str, paused: bool) -> DeployBody:
    given = media_type(request)
    if given in YAML_TYPES:
        return DeployBody(definition=await text_of(request), source=source, paused=paused)
    if given != "application/json":
        raise Problem(
            "unsupported_media_type",
            f"the body is sent as {given or 'nothing'}; send a workflow file with 'Content-Type: application/yaml', "
            "or JSON {\"definition\": …} with 'Content-Type: application/json'",
        )
    try:
        return DeployBody.model_validate(await json_of(request))
    except ValidationError as error:
        raise invalid([{**entry, "loc": ("body", *entry["loc"])} for entry in error.errors()]) from error


def _checked(api: Services, text: str, file: str) -> Workflow:
    loaded = load_text(text, file, _pools(api))
    # A pool nobody knows may be about to come with its workers; one that nearly has a known name is a typing mistake.
    if loaded.mistakes and all(one.code == "unknown_pool" and _NEAR not in one.message for one in loaded.mistakes):
        loaded = load_text(text, file)
    if loaded.workflow is None or loaded.mistakes:
        count = len(loaded.mistakes)
        detail = f"{count} mistake{'s' if count != 1 else ''}; the first: {loaded.mistakes[0]}"
        raise Problem("invalid_definition", detail, errors=[msgspec.structs.asdict(one) for one in loaded.mistakes])
    return loaded.workflow


def _pools(api: Services) -> dict[str, int | None] | None:
    """The pools there are, with their slots; None if the read model cannot tell, which must not stop a deployment."""
    try:
        page = api.reads.read(lambda connection: reads.list_pools(connection, limit=_POOLS_MAX))
    except Problem:
        return None
    return {row.pool: row.slots for row in page.items}
