"""Schema files, classes and the published versions say the same."""

from __future__ import annotations

import json
import re
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests.wire.samples import EVENTS, MESSAGES, ROOT, SCHEMAS, schema_file
from tidewheel.core.events import PoolEvent
from tidewheel.core.mail import Mail
from tidewheel.wire import catalog
from tools.publish_schemas import publish, published_form

TRAVELLING = MESSAGES + EVENTS
IDS = [kind.__name__ for kind in TRAVELLING]
#: What an event begins with, where it has it; and ends with.
LEAD = ["dag", "run_id", "task", "attempt", "at", "actor"]
ENVELOPE = [("cause", "string"), ("seq", "long"), ("shard_seq", "long"), ("writer", "long")]
CHAIN = {"type": "fixed", "name": "Chain", "size": 8}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
AVRO: dict[type, list[object]] = {str: ["string"], int: ["int", "long", TIME], bool: ["boolean"], bytes: ["bytes"]}


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return json.loads(schema_file(kind).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def own_fields(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    fields = schema(kind)["fields"]
    return fields[: -len(ENVELOPE) - 1] if kind in EVENTS else fields  # type: ignore[no-any-return]


def test_each_message_has_one_file_and_each_file_a_message() -> None:
    files = set(SCHEMAS.glob("**/*.avsc"))
    assert files == {schema_file(kind) for kind in TRAVELLING}


@pytest.mark.parametrize("kind", TRAVELLING, ids=IDS)
def test_schema_and_class_agree(kind: type[msgspec.Struct]) -> None:
    hints = get_type_hints(kind)
    classes = {
        f.name: f for f in msgspec.structs.fields(kind) if not (issubclass(kind, Mail) and f.name == "partition")
    }
    fields = {field["name"]: field for field in own_fields(kind)}
    assert schema(kind)["name"] == kind.__name__
    assert schema(kind)["namespace"] == f"tidewheel.{schema_file(kind).parent.name}"
    assert set(fields) == set(classes)
    for name, field in fields.items():
        hint = hints[name]
        options = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
        nullable = type(None) in options
        assert isinstance(field["type"], list) == nullable, name
        if nullable:
            assert field["type"][0] == "null", f"{name}: null comes first, so that the default may be null"
        avro = field["type"][1] if nullable else field["type"]
        option = next(option for option in options if option is not type(None))
        assert avro in AVRO[str if get_origin(option) is Literal else option], name
        assert field.get("default", msgspec.NODEFAULT) == classes[name].default, name


@pytest.mark.parametrize("kind", TRAVELLING, ids=IDS)
def test_every_field_is_explained(kind: type[msgspec.Struct]) -> None:
    assert len(schema(kind)["doc"]) > 20
    for field in schema(kind)["fields"]:
        doc = field["doc"]
        assert len(doc) > 10 and doc[0].isupper() and doc.endswith("."), (field["name"], doc)
        avro = field["type"][1] if isinstance(field["type"], list) else field["type"]
        if avro == TIME:
            assert "milliseconds since the epoch" in doc, f"{field['name']}: which unit?"
        if field["name"].endswith("_ms"):
            assert "milliseconds" in doc, f"{field['name']}: which unit?"
        if isinstance(field["type"], list):
            assert re.search(r"\bnull\b", doc, re.IGNORECASE), f"{field['name']}: what does null mean?"


@pytest.mark.parametrize("kind", TRAVELLING, ids=IDS)
def test_times_are_marked_as_times(kind: type[msgspec.Struct]) -> None:
    for field in schema(kind)["fields"]:
        avro = field["type"][1] if isinstance(field["type"], list) else field["type"]
        is_time = re.fullmatch(r"at|.*_at|logical_date|interval_start|interval_end|cursor", field["name"]) is not None
        assert is_time <= (avro == TIME), f"{field['name']} is a time"


@pytest.mark.parametrize("kind", TRAVELLING, ids=IDS)
def test_words_are_listed(kind: type[msgspec.Struct]) -> None:
    docs = {field["name"]: field["doc"] for field in schema(kind)["fields"]}
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is Literal:
            assert re.findall(r"`([a-z_]+)`", docs[name]) == list(get_args(hint)), name


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_begins_with_whose_it_is_and_ends_with_its_chain(kind: type[msgspec.Struct]) -> None:
    fields = schema(kind)["fields"]
    names = [field["name"] for field in fields]
    pool = ["pool"] if issubclass(kind, PoolEvent) else []
    lead = pool + [name for name in LEAD if name in names and (not pool or name in ("at", "actor"))]
    assert names[: len(lead)] == lead
    assert [(field["name"], field["type"]) for field in fields[-5:-1]] == ENVELOPE
    assert (names[-1], fields[-1]["type"]) == ("chain", CHAIN)
    assert tuple(names[-5:]) == catalog.ENVELOPE


# --- what was published ------------------------------------------------------------------------------------------


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SCHEMAS / "published.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", TRAVELLING, ids=IDS)
def test_todays_schema_is_published(kind: type[msgspec.Struct]) -> None:
    fingerprint, canonical = published_form(schema_file(kind).read_text(encoding="utf-8"))
    name = f"{schema(kind)['namespace']}.{kind.__name__}"
    published = [line["fingerprint"] for line in lines() if line["schema"]["name"] == name]
    assert published and published[-1] == fingerprint, (
        f"{name} has changed: run tools/publish_schemas.py and commit what it appends (see schemas/README.md)"
    )
    version = catalog.current(kind)
    assert version is not None and version.fingerprint.hex() == fingerprint and version.message is kind
    assert [field["name"] for field in json.loads(canonical)["fields"]] == [field.name for field in version.fields]


def rabin(text: str) -> bytes:
    """CRC-64-AVRO as the Avro specification gives it, little-endian as single-object encoding wants it."""
    empty = 0xC15D213AA4D7A795
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (empty & -(byte & 1))
        table.append(byte)
    fingerprint = empty
    for byte in text.encode():
        fingerprint = fingerprint >> 8 ^ table[(fingerprint ^ byte) & 255]
    return fingerprint.to_bytes(8, "little")


def test_the_fingerprint_is_that_of_the_specification() -> None:
    assert rabin('"int"') == (0x7275D51A3F395C8F).to_bytes(8, "little"), "the specification's own example"
    for line in lines():
        canonical = json.dumps(line["schema"], separators=(",", ":"), ensure_ascii=False)
        assert line["fingerprint"] == rabin(canonical).hex(), line["schema"]["name"]


def test_a_published_version_is_never_altered() -> None:
    """Its line is in the canonical form it was published in, and its fingerprint (above) is that of the line."""
    text = (SCHEMAS / "published.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n")
    fingerprints = [line["fingerprint"] for line in lines()]
    assert len(set(fingerprints)) == len(fingerprints)
    golden = (ROOT / "tests" / "wire" / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = list(dict.fromkeys(json.loads(line)["fingerprint"] for line in golden))
    assert fingerprints == recorded, "a version is missing, or has no golden records: versions are only ever appended"


def test_publishing_appends_what_changed_and_nothing_else(tmp_path: Any) -> None:
    schemas, golden = tmp_path / "schemas", tmp_path / "golden.jsonl"
    (schemas / "mail").mkdir(parents=True)
    file = schemas / "mail" / "worker_unknown.avsc"
    original = (SCHEMAS / "mail" / "worker_unknown.avsc").read_text(encoding="utf-8")
    file.write_text(original, encoding="utf-8")
    assert publish(schemas, golden) == ["tidewheel.mail.WorkerUnknown"]
    before = (schemas / "published.jsonl").read_text(encoding="utf-8")
    assert publish(schemas, golden) == []
    file.write_text(original.replace("Id of the pool.", "The pool's id."), encoding="utf-8")
    assert publish(schemas, golden) == [], "a doc is no part of a version"
    added = original.replace('"fields": [', '"fields": [{"name": "since", "type": ["null", "long"], "default": null},')
    file.write_text(added, encoding="utf-8")
    assert publish(schemas, golden) == ["tidewheel.mail.WorkerUnknown"]
    after = (schemas / "published.jsonl").read_text(encoding="utf-8")
    assert after.startswith(before) and after.count("\n") == 2
    assert golden.read_text(encoding="utf-8").count("\n") == 4
    file.write_text(original, encoding="utf-8")
    with pytest.raises(SystemExit, match="an earlier version again"):
        publish(schemas, golden)


def test_an_installed_package_finds_its_schemas(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "site-packages" / "tidewheel" / "wire" / "catalog.py"))
    assert str(catalog.schema_folder()).endswith("_schemas")
