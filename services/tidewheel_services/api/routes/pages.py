"""A read whose answer is a page of what belongs to something, which may not be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.responses import Response

from tidewheel_projections import reads, views
from tidewheel_services.api.services import Services, answer

Row = TypeVar("Row")


def answer_page(
    api: Services,
    query: Callable[[reads.Connection], views.Page[Row]],
    owner: Callable[[reads.Connection], object],
) -> Response:
    """The page that ``query`` finds. If nothing is on it, ``owner`` looks for what it would belong to, and raises the
    ``Problem`` if that is not there."""

    def page(connection: reads.Connection) -> views.Page[Row]:
        found = query(connection)
        if not found.items:
            owner(connection)
        return found

    return answer(api.reads.read(page))
