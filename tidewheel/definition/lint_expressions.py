"""Expressions at deploy time: they parse, name what exists, mention only tasks upstream, and their types fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from cel_expr_python import cel

from tidewheel.core.nearest import did_you_mean
from tidewheel.core.workflow import InputType
from tidewheel.definition.expressions import SECRET, SOURCE_LENGTH_MAX, compile_mistakes
from tidewheel.definition.lint_graph import Graph
from tidewheel.definition.lint_triggers import triggers_of
from tidewheel.definition.mistakes import Findings
from tidewheel.definition.nodes import Node, Scalar, descend
from tidewheel.definition.references import ROOTS, Reference, references, sole_reference
from tidewheel.definition.shapes import Draft
from tidewheel.definition.templates import Placeholder, TemplateError, has_expression, parse_template, whole_expression

_TYPES: Final[dict[InputType, Any]] = {
    "string": cel.Type.STRING,
    "integer": cel.Type.INT,
    "number": cel.Type.DOUBLE,
    "boolean": cel.Type.BOOL,
    "date": cel.Type.STRING,
    "datetime": cel.Type.STRING,
    "array": cel.Type.LIST,
    "object": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
}
#: CEL types that an expression for an input of the type may have, beside those not known before it runs.
_FITTING: Final[dict[InputType, tuple[str, ...]]] = {
    "string": ("STRING",),
    "integer": ("INT", "UINT"),
    "number": ("INT", "UINT", "DOUBLE"),
    "boolean": ("BOOL",),
    "date": ("STRING", "TIMESTAMP"),
    "datetime": ("STRING", "TIMESTAMP"),
    "array": ("LIST",),
    "object": ("MAP",),
}
_RUN_TYPES: Final = {
    "run.id": cel.Type.STRING,
    "run.kind": cel.Type.STRING,
    "run.attempt": cel.Type.INT,
}
_RUN_FIELDS: Final = ("id", "kind", "logical_date", "interval", "attempt")
_INTERVAL_FIELDS: Final = ("start", "end")
_TASK_FIELDS: Final = ("state", "output")
#: What is known of a record before it is there; of ``key``, ``value`` and ``headers`` nothing is.
_EVENT_TYPES: Final = {
    "event.topic": cel.Type.STRING,
    "event.partition": cel.Type.INT,
    "event.offset": cel.Type.INT,
    "event.timestamp": cel.Type.STRING,
}
_EVENT_FIELDS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")

_RESPONSE_FIELDS: Final = ("status", "headers", "json", "text")

#: These are no field names in CEL; every other id is.
NOT_IN_EXPRESSIONS: Final = frozenset({"in", "true", "false", "null"})

_NUMBER: Final = "(?:int|uint|double)"
#: Comparing whole and decimal numbers: the checker refuses it, evaluation does it.
_COMPARED: Final = re.compile(
    rf"found no matching overload for '_(?:<|<=|>|>=|==|!=)_' applied to '\({_NUMBER}, {_NUMBER}\)'"
)
_MIXED: Final = re.compile(r"found no matching overload for '_([-+*/%])_' applied to '\((?:int, double|double, int)\)'")
_NO_OVERLOAD: Final = re.compile(r"found no matching overload for '([^']*)' applied to '\((.*)\)'")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")


@dataclass(frozen=True, slots=True)
class _Site:
    """A text with expressions: what may be named there."""

    text: str
    node: Node
    roots: frozenset[str]
    task: str | None = None
    #: Why secrets are not allowed; empty where they are.
    no_secrets: str = "secrets may stand only where a worker reads them: in env and http headers"
    #: The name of the item, in a task with ``for_each``.
    item: str = ""
    #: Whether it is about a record, which is known as ``event``.
    event: bool = False
    #: Whether it is about an answer, which is known as ``response``.
    response: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What is known here beside the roots."""
        beside = (self.item, "event" if self.event else "", "response" if self.response else "")
        return tuple(name for name in beside if name)


_DEFAULT_ROOTS: Final = frozenset({"run"})
_WORKFLOW_ROOTS: Final = frozenset({"inputs", "run"})
_TASK_ROOTS: Final = frozenset({"inputs", "run", "tasks", "env"})


#: Where an action's mapping may hold expressions, but no secrets.
_TEMPLATED: Final = {
    "http": ("url", "json", "body"),
    "container": ("image", "command", "entrypoint", "volumes"),
    "kubernetes": ("image", "command", "entrypoint", "job"),
    "celery": ("args", "kwargs"),
}


def lint_expressions(draft: Draft, graph: Graph, findings: Findings) -> None:
    """Note every mistake in every expression of the workflow."""
    checker = _Checker(draft, graph, findings)
    for name, declared in draft.get("inputs", {}).items():
        checker.default(name, declared)
    for site in _texts(draft, "env", _WORKFLOW_ROOTS, secrets=True):
        checker.template(site)
    for trigger in triggers_of(draft):
        if isinstance(kafka := trigger.get("kafka"), Draft):
            checker.records(kafka)
    for task in draft.get("tasks", ()):
        if task is None:
            continue
        for site in _task_sites(task):
            checker.template(site)
        for site in _texts(task, "for_each", _TASK_ROOTS, task.get("id")):
            checker.items(site, whole=site.text is task["for_each"])
        for place in (task, *_branches(task)):
            if "if" in place:
                checker.condition(_Site(place["if"], place.node.entries["if"], _TASK_ROOTS, task.get("id")))
        for site in _ends_of_waits(task):
            checker.condition(site, "a 'match'" if site.event else "an 'until'")


def _ends_of_waits(task: Draft) -> Iterator[_Site]:
    """What a waiter looks for."""
    wait = task.get("wait_for")
    http = wait.get("http") if isinstance(wait, Draft) else None
    if isinstance(http, Draft) and "until" in http:
        yield _Site(http["until"], http.node.entries["until"], _WORKFLOW_ROOTS, task.get("id"), response=True)
    kafka = wait.get("kafka") if isinstance(wait, Draft) else None
    if isinstance(kafka, Draft) and "match" in kafka:
        yield _Site(kafka["match"], kafka.node.entries["match"], _WORKFLOW_ROOTS, task.get("id"), event=True)


def _branches(task: Draft) -> list[Draft]:
    return [branch for branch in task.get("switch", ()) if branch is not None]


def _task_sites(task: Draft) -> Iterator[_Site]:
    name = task.get("id")
    sites = [_texts(task, "env", _TASK_ROOTS, name, secrets=True), _texts(task, "with", _TASK_ROOTS, name)]
    if isinstance(http := task.get("http"), Draft):
        sites.append(_texts(http, "headers", _TASK_ROOTS, name, secrets=True))
    for action, keys in _TEMPLATED.items():
        if isinstance(written := task.get(action), Draft):
            sites += [_texts(written, key, _TASK_ROOTS, name) for key in keys]
    sites += [_texts(task, "inputs", _TASK_ROOTS, name)]
    if isinstance(wait := task.get("wait_for"), Draft):
        sites += [_texts(wait, key, _TASK_ROOTS, name) for key in ("time", "run")]
        if isinstance(http := wait.get("http"), Draft):
            sites.append(_texts(http, "url", _TASK_ROOTS, name))
            sites.append(_texts(http, "headers", _TASK_ROOTS, name, secrets=True))
    for site in chain(*sites):
        yield replace(site, item=task.get("as", "item")) if "for_each" in task.node.entries else site


def _texts(
    draft: Draft, key: str, roots: frozenset[str], task: str | None = None, *, secrets: bool = False
) -> Iterator[_Site]:
    """The texts with expressions under ``key``."""
    if key not in draft:
        return
    for text, node in _strings(draft[key], descend(draft.node, key)):
        yield _Site(text, node, roots, task, "") if secrets else _Site(text, node, roots, task)


def _strings(value: Any, node: Node) -> Iterator[tuple[str, Node]]:
    match value:
        case str() if has_expression(value):
            yield value, node
        case dict():
            for key, item in value.items():
                yield from _strings(item, descend(node, key))
        case list():
            for index, item in enumerate(value):
                yield from _strings(item, descend(node, index))


class _Checker:
    """Checks the expressions of one workflow."""

    def __init__(self, draft: Draft, graph: Graph, findings: Findings) -> None:
        self._graph = graph
        self._findings = findings
        self._inputs: Draft | dict[str, Any] = draft.get("inputs", {})
        self._input_names = list(self._inputs.node.entries) if isinstance(self._inputs, Draft) else []
        self._workflow_env: dict[str, Any] = draft.get("env", {})
        self._environments: dict[tuple[bool, tuple[str, ...]], Any] = {}

    def template(self, site: _Site) -> None:
        """A text with expressions in it."""
        for placeholder in self._placeholders(site):
            self._expression(placeholder, site, type_wanted=False)

    def records(self, kafka: Draft) -> None:
        """What a trigger asks of a record and takes from it."""
        if "filter" in kafka:
            site = _Site(kafka["filter"], kafka.node.entries["filter"], frozenset(), event=True)
            self.condition(site, "a 'filter'")
        for site in _texts(kafka, "dedupe_key", frozenset()):
            self.template(replace(site, event=True))
        for name, value in kafka.get("inputs", {}).items():
            for text, node in _strings(value, descend(kafka.node, "inputs", name)):
                site = _Site(text, node, frozenset(), event=True)
                wanted = self._inputs.get(name, {}).get("type") if text is value else None
                self._value(site, wanted, f"the value for {name!r}", "bad_value")

    def condition(self, site: _Site, what: str = "an 'if'") -> None:
        """An ``if``, or ``what`` else must be true or false."""
        if has_expression(site.text):
            placeholders = self._placeholders(site)
            if len(placeholders) != 1 or whole_expression(site.text) is None:
                if placeholders:
                    self._findings.add(
                        site.node, "bad_expression", f"{what} is one expression: '${{{{ … }}}}' and nothing around it"
                    )
                return
            placeholder = placeholders[0]
        else:
            placeholder = Placeholder(site.text.strip(), len(site.text) - len(site.text.lstrip()))
        kind = self._expression(placeholder, site)
        if kind not in (None, "BOOL", "DYN"):
            self._note(
                site,
                placeholder.offset,
                "not_boolean",
                f"{what} must be true or false, this is of the type {_type_name(kind)}",
            )

    def items(self, site: _Site, *, whole: bool) -> None:
        """A ``for_each``, the ``whole`` of it or a text in a list."""
        placeholders = self._placeholders(site)
        kinds = [self._expression(placeholder, site) for placeholder in placeholders]
        if not whole:
            return
        if whole_expression(site.text) is None:
            message = "'for_each' is a list, or one expression: '${{ … }}' and nothing around it"
            self._findings.add(site.node, "bad_expression", message)
        elif kinds and kinds[0] is not None and not kinds[0].startswith(("LIST", "DYN")):
            message = f"'for_each' must give a list, this is of the type {_type_name(kinds[0])}"
            self._note(site, placeholders[0].offset, "not_list", message)

    def default(self, name: str, declared: Draft) -> None:
        """The default of an input."""
        for site in _texts(declared, "default", _DEFAULT_ROOTS):
            wanted = declared.get("type") if site.text is declared["default"] else None
            self._value(site, wanted, f"the default of {name!r}", "bad_default")

    def _value(self, site: _Site, wanted: InputType | None, what: str, code: str) -> None:
        """A text with expressions that must give what an input of the type takes; None: it is only a part of it."""
        whole = None
        for placeholder in self._placeholders(site):
            kind = self._expression(placeholder, site)
            whole = kind if whole_expression(site.text) is not None else "STRING"
        if wanted is None or whole in (None, "DYN") or whole.startswith(_FITTING[wanted]):
            return
        message = f"{what} is of the type {_type_name(whole)}, the input of the type {wanted}"
        self._findings.add(site.node, code, message)

    def _placeholders(self, site: _Site) -> list[Placeholder]:
        try:
            return [part for part in parse_template(site.text) if isinstance(part, Placeholder)]
        except TemplateError as error:
            self._note(site, error.offset, "bad_expression", str(error))
            return []

    def _expression(self, placeholder: Placeholder, site: _Site, *, type_wanted: bool = True) -> str | None:
        """The expression's type, or None when it is not known because of a mistake."""
        source = placeholder.source
        if SECRET.fullmatch(source):
            if site.no_secrets:
                self._note(site, placeholder.offset, "secret_not_allowed", site.no_secrets)
            return None
        if len(source) > SOURCE_LENGTH_MAX:
            self._note(site, placeholder.offset, "bad_expression", f"longer than {SOURCE_LENGTH_MAX} characters")
            return None
        mentioned = references(source, site.names)
        problems = [(one, found) for one in mentioned if (found := self._problem(one, site)) is not None]
        for reference, (code, message) in problems:
            self._note(site, placeholder.offset + reference.offset, code, message)
        if problems or (not type_wanted and sole_reference(source, site.names)):
            return None
        try:
            return str(self._typed(site).compile(source).return_type().name())
        except Exception as error:
            return self._complaints(error, placeholder, site)

    def _complaints(self, error: Exception, placeholder: Placeholder, site: _Site) -> str | None:
        lines = placeholder.source.splitlines(keepends=True) or [""]
        for line, column, message in compile_mistakes(error):
            if _COMPARED.search(message) or "*error*" in message:
                continue
            offset = sum(len(one) for one in lines[: line - 1]) + column - 1
            self._note(site, placeholder.offset + offset, *_reworded(message))
        return None

    def _problem(self, reference: Reference, site: _Site) -> tuple[str, str] | None:
        """What is wrong with a mention of a name."""
        root, path = reference.root, reference.path
        if root == "secrets":
            why = (
                site.no_secrets or "a secret may stand only alone: ${{ secrets.NAME }}, nothing else within the braces"
            )
            return "secret_not_allowed", why
        if root in site.names:
            if root == "response" and site.response:
                return _unknown("field", "response.", path[:1], _RESPONSE_FIELDS)
            return _unknown("field", "event.", path[:1], _EVENT_FIELDS) if site.event and root == "event" else None
        if root not in site.roots:
            known = ", ".join(sorted(site.roots.union(site.names)))
            return "name_not_available", f"{root!r} is not known here; an expression at this place sees {known}"
        match root:
            case "inputs":
                return _unknown("input", "", path[:1], self._input_names)
            case "run":
                return _unknown("field", "run.", path[:1], _RUN_FIELDS) or (
                    _unknown("field", "run.interval.", path[1:2], _INTERVAL_FIELDS)
                    if path[:1] == ("interval",)
                    else None
                )
            case "tasks":
                return self._task_problem(path, site)
        return self._env_problem(path, site)

    def _task_problem(self, path: tuple[str, ...], site: _Site) -> tuple[str, str] | None:
        if not path:
            return "bad_expression", "'tasks' must be followed by the id of one task, as in tasks.load.output"
        name = path[0]
        if name not in self._graph.written:
            return "unknown_task", f"there is no task {name!r}{did_you_mean(name, self._graph.tasks)}"
        if name == site.task:
            return "not_upstream", f"the task {name!r} cannot see itself"
        if site.task is not None and name in self._graph.tasks and not self._graph.is_upstream(name, site.task):
            return (
                "not_upstream",
                f"{name!r} is not upstream of {site.task!r}, so it may not have run: add it to 'needs'",
            )
        return _unknown("field", f"tasks.{name}.", path[1:2], _TASK_FIELDS)

    def _env_problem(self, path: tuple[str, ...], site: _Site) -> tuple[str, str] | None:
        task = self._graph.tasks.get(site.task) if site.task is not None else None
        env = {**self._workflow_env, **(task.get("env", {}) if task is not None else {})}
        if unknown := _unknown("environment variable", "", path[:1], env):
            return unknown
        if path and has_expression(str(env[path[0]])):
            return "name_not_available", f"env.{path[0]} holds an expression itself: write that expression here instead"
        return None

    def _typed(self, site: _Site) -> Any:
        """The environment with all types that are known. Making one takes longer than compiling: one is kept."""
        key = (site.event, site.names)
        if key not in self._environments:
            beside = {**dict.fromkeys(site.names, cel.Type.DYN), **(_EVENT_TYPES if site.event else {})}
            if site.response:
                beside["response.status"] = cel.Type.INT
            self._environments[key] = cel.NewEnv(variables={**self._variables(), **beside})
        return self._environments[key]

    def _variables(self) -> dict[str, Any]:
        anything = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
        variables = {
            "inputs": anything,
            "run": anything,
            "tasks": anything,
            "env": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
        }
        for name, declared in self._inputs.items():
            if name in NOT_IN_EXPRESSIONS:
                continue
            nullable = "default" in declared and declared["default"] is None
            kind = _TYPES.get(declared.get("type"), cel.Type.DYN)
            variables[f"inputs.{name}"] = cel.Type.DYN if nullable else kind
        states = {
            f"tasks.{name}.state": cel.Type.STRING for name in self._graph.tasks if name not in NOT_IN_EXPRESSIONS
        }
        return {**variables, **states, **_RUN_TYPES}

    def _note(self, site: _Site, offset: int, code: str, message: str) -> None:
        node = site.node
        column = node.column_of(offset) if isinstance(node, Scalar) else node.column
        self._findings.at(node.line, column, code, message)


def _unknown(what: str, prefix: str, name: tuple[str, ...], known: Iterable[str]) -> tuple[str, str] | None:
    names = list(known)
    if not name or name[0] in names:
        return None
    hint = did_you_mean(name[0], names) or (f"; known are {', '.join(names[:20])}" if names else "; none is declared")
    return "unknown_name", f"there is no {what} '{prefix}{name[0]}'{hint}"


def _reworded(message: str) -> tuple[str, str]:
    """The compiler's complaint for people who do not know CEL from inside: code and message."""
    if mixed := _MIXED.search(message):
        return (
            "type_mismatch",
            f"'{mixed[1]}' does not mix whole and decimal numbers: write 2.0 for 2, or double(x) or int(x)",
        )
    if found := _NO_OVERLOAD.search(message):
        return "type_mismatch", f"'{found[1].strip('_@').replace('_', ' ')}' does not go with ({found[2]})"
    if found := _UNDECLARED.search(message):
        name = found[1].split(".", 1)[0]
        return "unknown_name", f"unknown name {found[1]!r}{did_you_mean(name, ROOTS)}"
    if "Syntax error" in message and "input '<EOF>'" in message:
        return "bad_expression", "the expression ends too early"
    return "bad_expression", message.split(" expecting ")[0]


def _type_name(kind: str) -> str:
    return kind.lower().replace("<", " of ", 1).removesuffix(">") if "<" in kind else kind.lower()
