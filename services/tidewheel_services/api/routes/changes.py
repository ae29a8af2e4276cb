"""A write whose answer is whether it changed anything."""

from __future__ import annotations

from starlette.responses import Response

from tidewheel.core.commands import Request
from tidewheel_services.api import shapes
from tidewheel_services.api.services import Services, answer


async def change(api: Services, name: str, command: Request) -> Response:
    """Ask ``command`` of the DAG or pool ``name``; asking twice must be as good as once."""
    reply = await api.ask(command, "Asking again is safe.")
    content = shapes.Changed(name=name, changed=reply.created, message=reply.message, position=reply.position)
    return answer(content, position=reply.position)
