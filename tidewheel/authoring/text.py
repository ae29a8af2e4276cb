"""Nodes to the YAML that says the same: what is deployed, kept with the version, and shown to people."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tidewheel.definition.nodes import Mapping, Node, Scalar

_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_RESOLVER: Final[Any] = yaml.resolver.Resolver()
_STR: Final = "tag:yaml.org,2002:str"
#: Texts that need no quotes in any YAML; the emitter quotes those that YAML 1.1 bends.
_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*( [A-Za-z_][\w./-]*)*(:[A-Za-z_]\w*)?", re.ASCII)


def yaml_text(root: Node) -> str:
    """A document that loads as ``root`` does."""
    return str(yaml.serialize(_node(root), Dumper=_DUMPER, allow_unicode=True, width=10_000))


def _node(node: Node) -> yaml.Node:
    match node:
        case Scalar(text=text, plain=True):
            return yaml.ScalarNode(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)), text)
        case Scalar(text=text):
            style = None if _PLAIN.fullmatch(text) else "|" if "\n" in text else "'" if '"' in text else '"'
            return yaml.ScalarNode(_STR, text, style=style)
        case Mapping(entries=entries):
            pairs = [(_node(Scalar(1, 1, key, plain=False)), _node(value)) for key, value in entries.items()]
            return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=False)
    items = [_node(item) for item in node.items]
    short = all(isinstance(item, Scalar) and len(item.text) < 40 for item in node.items)
    return yaml.SequenceNode("tag:yaml.org,2002:seq", items, flow_style=short)
