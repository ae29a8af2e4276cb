"""The named queries of ``queries.sql``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources

_NAME = "-- name: "


@functools.cache
def named_queries() -> Mapping[str, bytes]:
    """Every query by its name."""
    text = resources.files("tidewheel_projections").joinpath("queries.sql").read_text(encoding="utf-8")
    queries: dict[str, bytes] = {}
    for part in text.split("\n" + _NAME)[1:]:
        name, _, body = part.partition("\n")
        assert name.strip() not in queries, f"queries.sql has two queries named {name.strip()}"
        queries[name.strip()] = body.strip().encode()
    return queries
