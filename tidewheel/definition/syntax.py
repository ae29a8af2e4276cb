"""YAML text to nodes: strict, bounded, and going on after a mistake where that makes sense.

The events of PyYAML's parser (libyaml where it is built in: 40 times faster than a pure Python scanner, and it bounds
nesting itself) are composed here, because this is where duplicate keys, tags, aliases and merge keys are judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Mapping, Node, Scalar, Sequence
from tidewheel.definition.templates import OPENING

#: A workflow of 10,000 tasks fits well; what is larger is not written by people and should be split.
FILE_BYTES_MAX: Final = 1_048_576
DEPTH_MAX: Final = 64
#: Nodes with every alias expanded. A file at the bound without aliases stays below.
NODES_MAX: Final = 600_000
#: So often an unquoted ``*`` is read as if it were quoted, to find the mistakes after it.
_QUOTINGS_MAX: Final = 50

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE: Final = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KEY: Final = re.compile(r"(?P<key>[A-Za-z_][\w-]*)\s*:\s+$")
#: A plain text up to a comment; within brackets or braces also up to what ends an item.
_BLOCK_VALUE: Final = re.compile(r"\*\S*(?:[^\S\n]+[^\s#]\S*)*")
_FLOW_VALUE: Final = re.compile(r"\*[^\s,\]}]*(?:[^\S\n]+[^\s#,\]}]+)*")
_TAB: Final = "a tab: YAML is indented with spaces"


def parse(text: str, findings: Findings) -> Node | None:
    """The document's root node, or None when there is nothing that could be read on."""
    text = text.removeprefix("\ufeff")
    if unprintable := _UNPRINTABLE.search(text):
        line, column = _position(text, unprintable.start())
        findings.at(line, column, "syntax", f"the character U+{ord(unprintable.group()):04X} is not allowed in YAML")
        return None
    if len(text.encode("utf-8")) > FILE_BYTES_MAX:
        findings.at(1, 1, "too_large", f"the file is larger than {FILE_BYTES_MAX} bytes; split the workflow")
        return None
    for _ in range(_QUOTINGS_MAX):
        try:
            return _compose(text, findings)
        except yaml.MarkedYAMLError as error:
            quoted = _quote_star(text, error, findings)
            if quoted is None:
                _note(text, error, findings)
                return None
            text = quoted
        except _Refused:
            return None
        except yaml.YAMLError as error:
            findings.at(1, 1, "syntax", f"not YAML: {error}")
            return None
    return None


class _Refused(Exception):
    """The document is refused whole; the reason is noted."""


def _compose(text: str, findings: Findings) -> Node | None:
    composer = _Composer(text, findings)
    root: Node | None = None
    documents = 0
    for event in composer.events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                findings.at(*_start(event), "multiple_documents", "a second document: one workflow a file")
                return root
            root = composer.node(next(composer.events), 1)
    if root is None or (isinstance(root, Scalar) and root.plain and not root.text):
        findings.at(1, 1, "empty", "the file is empty: a workflow needs at least 'id' and 'tasks'")
        return None
    return root


class _Composer:
    """Builds nodes from events."""

    def __init__(self, text: str, findings: Findings) -> None:
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
        self._text = text
        self._findings = findings
        self._anchors: dict[str, Node] = {}

    def node(self, event: Any, level: int) -> Node:
        """The node that begins with ``event``."""
        line, column = _start(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), line, column)
        if level > DEPTH_MAX:
            self._refuse(line, column, "too_deep", f"nested more than {DEPTH_MAX} levels deep")
        if event.tag is not None and event.tag != "!":
            self._findings.at(line, column, "tag", f"the tag {event.tag!r}: tags have no meaning here, leave it out")
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self._scalar(event, line, column)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(line, column, level)
        else:
            node = self._mapping(line, column, level)
        if node.size > NODES_MAX:
            self._refuse(line, column, "too_large", f"more than {NODES_MAX} values, aliases expanded")
        if node.depth > DEPTH_MAX:
            self._refuse(line, column, "too_deep", f"nested more than {DEPTH_MAX} levels deep, aliases expanded")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _refuse(self, line: int, column: int, code: str, message: str) -> None:
        self._findings.at(line, column, code, message)
        raise _Refused

    def _alias(self, anchor: str, line: int, column: int) -> Node:
        if anchor in self._anchors:
            return self._anchors[anchor]
        self._findings.at(
            line,
            column,
            "unknown_anchor",
            f"'*{anchor}' is an alias, but no anchor '&{anchor}' is above it; quote it if it is meant as a text",
        )
        return Scalar(line, column, f"*{anchor}", plain=False)

    def _scalar(self, event: Any, line: int, column: int) -> Scalar:
        plain = event.style in (None, "")
        quote = 1 if event.style in ("'", '"') else 0
        start = event.start_mark.index + quote
        verbatim = "\n" not in event.value and self._text.startswith(event.value, start)
        return Scalar(line, column, event.value, plain, verbatim and (plain or quote == 1), quote)

    def _sequence(self, line: int, column: int, level: int) -> Sequence:
        items = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, level + 1))
        size = 1 + sum(item.size for item in items)
        return Sequence(line, column, tuple(items), size, 1 + max((item.depth for item in items), default=0))

    def _mapping(self, line: int, column: int, level: int) -> Mapping:
        entries: dict[str, Node] = {}
        keys: dict[str, Scalar] = {}
        merged: list[Node] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, level + 1)
            value = self.node(next(self.events), level + 1)
            if not isinstance(key, Scalar):
                self._findings.add(key, "wrong_type", "a key must be a plain name")
            elif key.plain and key.text == "<<":
                merged.append(value)
            elif key.text in keys:
                first = keys[key.text]
                self._findings.add(
                    key, "duplicate_key", f"the key {key.text!r} is already on line {first.line}; keep one"
                )
            else:
                entries[key.text] = value
                keys[key.text] = key
        for node in merged:
            self._merge(node, entries, keys)
        size = 1 + len(entries) + sum(value.size for value in entries.values())
        return Mapping(
            line, column, entries, keys, size, 1 + max((value.depth for value in entries.values()), default=0)
        )

    def _merge(self, node: Node, entries: dict[str, Node], keys: dict[str, Scalar]) -> None:
        """``<<``: what the mapping does not say itself it takes from there; of several, the first has its way."""
        sources = node.items if isinstance(node, Sequence) else (node,)
        for source in sources:
            if not isinstance(source, Mapping):
                self._findings.add(
                    source, "wrong_type", "'<<' merges a mapping (an alias such as *defaults) or a list of them"
                )
                continue
            for name, value in source.entries.items():
                if name not in entries:
                    entries[name] = value
                    keys[name] = source.keys[name]


def _start(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _quote_star(text: str, error: yaml.MarkedYAMLError, findings: Findings) -> str | None:
    """The text with the unquoted ``*/10 …`` that the parser took for an alias in quotes, and the mistake noted."""
    mark = error.context_mark or error.problem_mark
    if error.context != "while scanning an alias" or mark is None:
        return None
    lines = text.splitlines(keepends=True)
    before, after = lines[mark.line][: mark.column], lines[mark.line][mark.column :]
    found = (_FLOW_VALUE if "[" in before or "{" in before else _BLOCK_VALUE).match(after)
    if found is None:
        return None
    value = found.group()
    key = _KEY.search(before)
    is_schedule = len(value.split()) == 5 or (key is not None and key["key"] in ("schedule", "cron"))
    what = "schedule" if is_schedule else "text"
    findings.at(
        mark.line + 1,
        mark.column + 1,
        "unquoted_star",
        f'quote the {what}: "{value}" (without quotes, YAML takes the * for an alias)',
    )
    lines[mark.line] = f"{before}'{value.replace(chr(39), chr(39) * 2)}'{after[found.end() :]}"
    return "".join(lines)


def _note(text: str, error: yaml.MarkedYAMLError, findings: Findings) -> None:
    """A syntax error in words that help."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    lines = text.splitlines()
    shown = lines[line] if line < len(lines) else ""
    problem = error.problem or "cannot be read"
    context = f" {error.context}" if error.context else ""
    if shown[column : column + 1] == "\t" or "\t" in shown[: len(shown) - len(shown.lstrip())]:
        message = _TAB
        column = shown.index("\t")
    elif OPENING in shown:
        message = f"{problem}{context}: put quotes around the value that holds the expression"
    elif "mapping values" in problem:
        message = f"{problem}: a ': ' inside a value; put quotes around it"
    elif shown[column : column + 1] in ("@", "`", "%"):
        message = f"a value cannot begin with {shown[column]!r}: put quotes around it"
    else:
        message = f"{problem}{context}"
    findings.at(line + 1, column + 1, "syntax", message)


def _position(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1
