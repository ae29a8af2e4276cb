"""What a worker is given to run: an action with every expression evaluated and only secrets left to resolve.

A ``Text`` is a sequence of literal strings and ``Secret`` names, joined on the worker. Secrets are structure, never
text, so a value that merely looks like ``${{ secrets.x }}`` stays the text it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel.core.workflow import Celery, Kubernetes, Pull


class Secret(msgspec.Struct, frozen=True, tag_field="kind", tag="secret"):
    """The value of a secret, known to the worker alone."""

    name: str


Text = tuple[str | Secret, ...]


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="run"):
    """Run ``command`` by ``/bin/sh -c`` under ``env``."""

    command: str
    env: dict[str, Text] = msgspec.field(default_factory=dict)


class PythonSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="python"):
    """Call ``callable`` (``module:name``, or a name registered with an embedded worker) with ``kwargs``."""

    callable: str
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    env: dict[str, Text] = msgspec.field(default_factory=dict)


class HttpSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="http"):
    """Send one HTTP request."""

    method: str
    url: str
    headers: dict[str, Text] = msgspec.field(default_factory=dict)
    json: Any = None
    body: str | None = None
    expect: tuple[int, ...] = ()


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="container"):
    """Run a container of ``image`` to its end."""

    image: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()
    network: str = ""
    memory: str = ""
    cpus: float | None = None
    pull: Pull = "missing"
    env: dict[str, Text] = msgspec.field(default_factory=dict)


#: Actions that are callables, which come with the worker process.
_CALLABLES: dict[type[Celery | Kubernetes], str] = {
    Celery: "tidewheel_services.actions.celery:hand_over",
    Kubernetes: "tidewheel_services.actions.kubernetes:run",
}


def call_of(action: Celery | Kubernetes) -> tuple[str, dict[str, Any]]:
    """The callable that does the action, and its arguments, expressions in them as they were written."""
    arguments = msgspec.to_builtins(action)
    del arguments["type"]
    return _CALLABLES[type(action)], arguments


ActionSpec = RunSpec | PythonSpec | HttpSpec | ContainerSpec
