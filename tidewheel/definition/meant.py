"""Which YAML files are meant as workflows: a directory of them may hold YAML of other tools too."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tidewheel.definition.syntax import FILE_BYTES_MAX

#: One of these stands at the top of whatever is meant as a workflow; of both, few people misspell both.
TELLING_KEYS: Final = frozenset({"id", "tasks"})
_AT_THE_MARGIN: Final = re.compile(r"""^(?P<quote>["']?)(?:id|tasks)(?P=quote)\s*:""", re.MULTILINE)
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING: Final = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING: Final = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def is_meant(data: bytes) -> bool:
    """Whether a file's bytes are meant as a workflow: its first document is a mapping with ``id`` or ``tasks``. Of what
    cannot be parsed, a line that begins with one of them says so: it is to be told as a workflow's mistake."""
    text = data[:FILE_BYTES_MAX].decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        return _has_telling_key(text)
    except yaml.YAMLError:
        return _AT_THE_MARGIN.search(text) is not None


def _has_telling_key(text: str) -> bool:
    depth, is_key = 0, True
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.DocumentEndEvent):
            return False
        if depth == 0 and isinstance(event, yaml.SequenceStartEvent):
            return False
        if depth == 1:
            if is_key and isinstance(event, yaml.ScalarEvent) and event.value in TELLING_KEYS:
                return True
            is_key = not is_key  # a collection is one key or value too, met here where it opens
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
    return False
