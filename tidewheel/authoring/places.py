"""Where in a Python file something is said: line and column of a call, and of each of its arguments.

A place is taken from the stack when a call is made; the file is parsed for the places of arguments only when they are
asked for, which is when the DAG is compiled.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

_PACKAGE: Final = f"{Path(__file__).parent}{os.sep}"
#: The file whose DAGs are wanted; None while a worker or a test imports it.
_reading: str | None = None


class Place(NamedTuple):
    """The extent of a call in a file; columns count UTF-8 bytes from 0, as Python's own do."""

    file: str
    line: int
    column: int
    end: tuple[int, int] = (0, 0)


class Spot(NamedTuple):
    """Line and column, both from 1, and what stands there as far as it is known."""

    line: int
    column: int
    expr: ast.expr | None = None


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Whatever is built within is placed in this file if a call there led to it."""
    global _reading
    before, _reading = _reading, file
    try:
        yield
    finally:
        _reading = before


def here() -> Place:
    """The innermost call outside of this package, in the file that is being read if there is one in it."""
    nearest: FrameType | None = None
    for frame in _frames():
        if _reading in (None, frame.f_code.co_filename):
            return _place(frame)
        nearest = nearest or frame
    return _place(nearest) if nearest is not None else Place("", 1, 0)


def is_read() -> bool:
    """Whether the module body being executed, the innermost one, is that of the file that is being read."""
    bodies = (frame.f_code.co_filename for frame in _frames() if frame.f_code.co_name == "<module>")
    return next(bodies, None) == _reading


def spot(place: Place) -> Spot:
    """The place as people count."""
    return _spot(place.file, place.line, place.column)


def argument(place: Place, name: str | int) -> tuple[Spot, Spot]:
    """Where the call's argument ``name`` (or that at this position) is named, and its value; else the call itself."""
    call = _calls(place.file).get(place.end)
    if call is not None and isinstance(name, int) and name < len(call.args):
        found = at(place.file, call.args[name])
        return found, found
    for keyword in call.keywords if call is not None else ():
        if keyword.arg == name:
            return _spot(place.file, keyword.lineno, keyword.col_offset), at(place.file, keyword.value)
    return spot(place), spot(place)


def at(file: str, expr: ast.expr) -> Spot:
    """Where an expression of the file stands."""
    return _spot(file, expr.lineno, expr.col_offset, expr)


def _spot(file: str, line: int, column: int, expr: ast.expr | None = None) -> Spot:
    before = linecache.getline(file, line).encode("utf-8", "replace")[:column]
    return Spot(line, len(before.decode("utf-8", "replace")) + 1 if before else column + 1, expr)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> Place:
    file, positions = frame.f_code.co_filename, frame.f_code.co_positions()
    line, end_line, column, end_column = next(islice(positions, frame.f_lasti // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        # Python was started without them (-X no_debug_ranges).
        return Place(file, frame.f_lineno, 0)
    return Place(file, line, column, (end_line, end_column))


@lru_cache(maxsize=32)
def _calls(file: str) -> dict[tuple[int, int], ast.Call]:
    """By their ends, for no two calls share a closing parenthesis."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return {
        (node.end_lineno or 0, node.end_col_offset or 0): node for node in ast.walk(tree) if isinstance(node, ast.Call)
    }
