"""Every key of the language, and every word that may stand behind one, occurs in an example (`examples/features`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tidewheel.definition.language import WORKFLOW
from tidewheel.definition.shapes import Choice, Either, ListOf, MapOf, Record, Shape

EXAMPLES = Path(__file__).parents[2] / "examples" / "features"
#: Behind these any of many words may stand, all of one meaning: methods of requests, kinds of failure.
_ONE_FOR_ALL = ("method", "kinds")


def known(shape: Shape, path: str = "") -> Iterator[str]:
    """Each key by its path, such as ``tasks.retry.max``, and each word of a choice: ``tasks.retry.backoff=fixed``."""
    match shape:
        case Record(keys=keys):
            for name, key in keys.items():
                yield f"{path}.{name}".lstrip(".")
                yield from known(key.shape, f"{path}.{name}".lstrip("."))
        case ListOf(item=inner) | MapOf(value=inner):
            yield from known(inner, path)
        case Either(other=inner):
            yield from known(inner, path)
        case Choice(words=words) if not path.endswith(_ONE_FOR_ALL):
            yield from (f"{path}={word}" for word in words)


def used(shape: Shape, written: Any, path: str = "") -> Iterator[str]:
    """What of it stands in a file."""
    match shape:
        case Record(keys=keys) if isinstance(written, dict):
            for name in written.keys() & keys.keys():
                yield f"{path}.{name}".lstrip(".")
                yield from used(keys[name].shape, written[name], f"{path}.{name}".lstrip("."))
        case ListOf(item=inner):
            for one in written if isinstance(written, list) else [written]:
                yield from used(inner, one, path)
        case MapOf(value=inner) if isinstance(written, dict):
            for one in written.values():
                yield from used(inner, one, path)
        case Either(other=inner):
            yield from used(inner, written, path)
        case Choice():
            yield f"{path}={written}"


def test_the_language_is_shown_whole() -> None:
    shown = {
        found
        for file in sorted(EXAMPLES.glob("*.yaml"))
        for found in used(WORKFLOW, yaml.safe_load(file.read_text(encoding="utf-8")))
    }
    language = set(known(WORKFLOW))
    # What the workflow's defaults say of tasks, tasks say too: each of them has been shown by one of the two.
    shown |= {f"defaults.{one.removeprefix('tasks.')}" for one in shown if one.startswith("tasks.")}
    assert {"tasks.wait_for.run.states=failed", "tasks.retry.only_on.kinds", "schedule.overlap=skip"} <= language
    assert sorted(language - shown) == []
