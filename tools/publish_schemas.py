"""Append schemas that changed since they were last published to ``schemas/published.jsonl`` (see schemas/README.md).

Run it when a message's ``.avsc`` has changed and its class with it. It never alters or removes a line: what was
published once may lie in somebody's journal for ever. Beside it, ``tests/wire/golden.jsonl`` gets records of the new
version, written by fastavro: what every later version of the code must still read as the same message.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import fastavro
import fastavro.schema

ROOT = Path(__file__).resolve().parents[1]
#: What golden records say where not any text will do.
_WORDS = {
    "action": "fail",
    "counted_from": "started",
    "dag": "orders_2",
    "kind": "manual",
    "mode": "chunked",
    "order": "backward",
    "pool": "default",
    "reprocess": "failed",
    "run_id": "manual__2026 ü",
    "state": "skipped",
    "task": "load_0",
    "then": "scheduled",
    "waits_for": "approval",
    "worker": "worker-1.example:7",
}
#: And what they say in messages with these names.
_WORDS_OF = {
    "kind": {"Fail": "timeout", "Launch": "workflow"},
    "state": {"ReportRunEnd": "success"},
}


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


def golden_lines(fingerprint: str, canonical: str) -> Iterator[str]:
    """Two records of a version, with what they say: every optional value present, and every one absent."""
    schema = json.loads(canonical)
    for present in (True, False):
        values = {
            field["name"]: _value(schema["name"], field, position, present)
            for position, field in enumerate(schema["fields"])
        }
        record = io.BytesIO(b"")
        record.write(b"\xc3\x01" + bytes.fromhex(fingerprint))
        fastavro.schemaless_writer(record, fastavro.parse_schema(schema), values)
        said = {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in values.items()}
        line = {"fingerprint": fingerprint, "name": schema["name"], "record": record.getvalue().hex(), "fields": said}
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _value(schema: str, field: dict[str, object], position: int, present: bool) -> object:
    name, kind = str(field["name"]), field["type"]
    for part, word in _WORDS_OF.get(name, {}).items():
        if part in schema:
            return word
    if isinstance(kind, list):
        if not present:
            return None
        kind = kind[1]
    if isinstance(kind, dict):
        return bytes(range(position, position + int(kind["size"])))
    if kind == "boolean":
        return present
    if kind == "bytes":
        return f"\x00\xff {name}".encode("latin-1")
    if kind == "string":
        return _WORDS.get(name, f"{name} ünï 🌊" if present else "")
    wide = 1_790_000_000_000 if name.endswith("_at") or name == "at" else 1 << 40 if kind == "long" else 1 << 20
    return wide + position if present else position if kind == "int" else -position


def publish(schemas: Path, golden: Path) -> list[str]:
    """Append what is new; the names of what was appended."""
    target = schemas / "published.jsonl"
    lines = target.read_text(encoding="utf-8").splitlines() if target.exists() else []
    latest = {(entry := json.loads(line))["schema"]["name"]: entry["fingerprint"] for line in lines}
    seen = {json.loads(line)["fingerprint"] for line in lines}
    appended, records = [], []
    for fingerprint, canonical in current_forms(schemas):
        name = json.loads(canonical)["name"]
        if latest.get(name) == fingerprint:
            continue
        if fingerprint in seen:
            raise SystemExit(f"{name} is an earlier version again; each is published once, so change something more")
        lines.append(f'{{"fingerprint":"{fingerprint}","schema":{canonical}}}')
        records += golden_lines(fingerprint, canonical)
        appended.append(name)
    with golden.open("a", encoding="utf-8") as file:
        file.writelines(record + "\n" for record in records)
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return appended


if __name__ == "__main__":
    names = publish(ROOT / "schemas", ROOT / "tests" / "wire" / "golden.jsonl")
    for published in names:
        sys.stdout.write(f"published {published}\n")
    if any(name.startswith("tidewheel.events.") for name in names):
        # The engine's own code, which reads what was just published.
        sys.path.insert(0, str(ROOT))
        from tools.golden_journal import main

        main([])
