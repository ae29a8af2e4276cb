"""Append schemas that changed since they were last published to ``schemas/published.jsonl`` (see schemas/README.md).

Run it when a message's ``.avsc`` has changed and its class with it. It never alters or removes a line: what was
published once may lie in somebody's journal for ever.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import fastavro.schema

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"


def without_logical_types(node: object) -> object:
    """The schema's wire form: logical types say how to read a number and are no part of how it is written."""
    if isinstance(node, dict):
        if set(node) == {"type", "logicalType"}:
            return node["type"]
        return {key: without_logical_types(value) for key, value in node.items()}
    return [without_logical_types(value) for value in node] if isinstance(node, list) else node


def published_form(text: str) -> tuple[str, str]:
    """The fingerprint (hex of the bytes in a record's header) and parsing canonical form of a schema file's text."""
    canonical = fastavro.schema.to_parsing_canonical_form(without_logical_types(json.loads(text)))
    return fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"), canonical


def current_forms(schemas: Path) -> Iterator[tuple[str, str]]:
    """The published form of each schema file."""
    for path in sorted(schemas.glob("*/*.avsc")):
        yield published_form(path.read_text(encoding="utf-8"))


def publish(schemas: Path) -> list[str]:
    """Append what is new; the names of what was appended."""
    target = schemas / "published.jsonl"
    lines = target.read_text(encoding="utf-8").splitlines() if target.exists() else []
    latest = {(entry := json.loads(line))["schema"]["name"]: entry["fingerprint"] for line in lines}
    seen = {json.loads(line)["fingerprint"] for line in lines}
    appended = []
    for fingerprint, canonical in current_forms(schemas):
        name = json.loads(canonical)["name"]
        if latest.get(name) == fingerprint:
            continue
        if fingerprint in seen:
            raise SystemExit(
                f"{name}: this is an earlier version again; a version is published once, so add a change to it"
            )
        lines.append(f'{{"fingerprint":"{fingerprint}","schema":{canonical}}}')
        appended.append(name)
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return appended


if __name__ == "__main__":
    for published in publish(SCHEMAS):
        sys.stdout.write(f"published {published}\n")
