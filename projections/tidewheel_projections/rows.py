"""Rows of the named queries as structs, and pages of them by keyset."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg.rows import RowMaker
from psycopg.types.json import set_json_loads

from tidewheel_projections.queries import named_queries
from tidewheel_projections.views import Page

PAGE_MAX = 10_000

T = TypeVar("T", bound=msgspec.Struct)
Connection: TypeAlias = psycopg.Connection[Any]


class BadCursor(ValueError):
    """An ``after`` that no page of this list gave out."""


def bounded(limit: int) -> int:
    """A page's size within what is allowed."""
    return max(1, min(limit, PAGE_MAX))


def fetched(connection: Connection, kind: type[T], name: str, parameters: Mapping[str, object]) -> list[T]:
    """The rows of a named query, whose columns are the struct's fields in their order."""

    def maker(cursor: psycopg.Cursor[Any]) -> RowMaker[T]:
        columns = [column.name for column in cursor.description or ()]
        assert not columns or columns == list(kind.__struct_fields__), f"{name}: {columns} is not {kind.__name__}"
        return lambda values: kind(*values)

    with psycopg.Cursor(connection, row_factory=maker) as cursor:
        set_json_loads(msgspec.json.decode, cursor)
        # Never prepared: a generic plan could not use the filters that are given.
        cursor.execute(named_queries()[name], parameters, prepare=False)
        return cursor.fetchall()


def first(connection: Connection, kind: type[T], name: str, parameters: Mapping[str, object]) -> T | None:
    """The first row; None: there is none."""
    rows = fetched(connection, kind, name, parameters)
    return rows[0] if rows else None


def paged(
    connection: Connection,
    kind: type[T],
    name: str,
    parameters: Mapping[str, object],
    limit: int,
    place: Callable[[T], tuple[object, ...]],
) -> Page[T]:
    """A page of the rows; ``place`` is what they are ordered by."""
    limit = bounded(limit)
    # One more than asked for tells whether there is more.
    rows = fetched(connection, kind, name, {**parameters, "limit": limit + 1})
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(items=rows, next=cursor_at(place(rows[-1])) if more else None)


def cursor_at(place: tuple[object, ...]) -> str:
    """The cursor of a place in a list."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_at(after: str | None, *kinds: type) -> list[Any]:
    """The place of a cursor, of parts of these kinds; all None: the beginning. Raises ``BadCursor``."""
    if after is None:
        return [None] * len(kinds)
    try:
        place = msgspec.json.decode(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except (ValueError, binascii.Error) as error:
        raise BadCursor(f"'{after[:80]}' is no cursor; hand back the 'next' of the page before, or none") from error
    fits = isinstance(place, list) and [type(part) for part in place] == list(kinds)
    if not fits:
        raise BadCursor(
            f"'{after[:80]}' is the cursor of another list; hand back the 'next' of this list's page before"
        )
    return list(place)
