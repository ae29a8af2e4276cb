"""An action as a worker is told to run it: its expressions evaluated, secrets left to the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from tidewheel.core.assignment import ActionSpec, ContainerSpec, HttpSpec, PythonSpec, RunSpec, Secret, Text, call_of
from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.core.workflow import Celery, Container, Http, HttpWait, Kubernetes, Python, Run, Task, WorkerAction


class _Verbatim:
    """Renders what holds no expression: as it is written."""

    def condition(self, source: str, scope: Scope) -> NoReturn:
        raise AssertionError("an action has no condition")

    def render(self, value: Any, scope: Scope) -> Any:
        return value

    def render_text(self, value: str, scope: Scope) -> Text:
        return (value,)


_NOTHING = Scope(inputs={}, run={}, task=lambda name: {})


def encode_action(spec: ActionSpec) -> str:
    """The JSON text that travels in ``AssignTask.action``."""
    return msgspec.json.encode(spec).decode()


def fixed_action(task: Task, env: Mapping[str, str]) -> str | None:
    """The text of an action that is the same in every run, under the workflow's ``env``; None: it holds expressions, or
    no worker runs it."""
    if not isinstance(task.action, WorkerAction) or b"${{" in msgspec.json.encode((task.action, env, task.env)):
        return None
    return encode_action(render_action(task, env, _NOTHING, _Verbatim()))


def render_action(task: Task, env: Mapping[str, str], scope: Scope, evaluator: Evaluator) -> ActionSpec:
    """The task's action with every expression evaluated but secrets. Raises ``ExpressionError``."""
    texts = {name: evaluator.render_text(value, scope) for name, value in {**env, **task.env}.items()}
    action = task.action
    assert isinstance(action, WorkerAction), f"no worker runs {task.id}"
    match action:
        case Run():
            return RunSpec(command=action.command, env=texts)
        case Python():
            return PythonSpec(callable=action.callable, kwargs=evaluator.render(action.with_, scope), env=texts)
        case Http():
            return HttpSpec(
                method=action.method,
                url=_text(action.url, scope, evaluator),
                headers={name: evaluator.render_text(value, scope) for name, value in action.headers.items()},
                json=evaluator.render(action.json, scope),
                body=None if action.body is None else _text(action.body, scope, evaluator),
                expect=action.expect,
            )
        case Container():
            return ContainerSpec(
                image=_text(action.image, scope, evaluator),
                command=_texts(action.command, scope, evaluator),
                entrypoint=_texts(action.entrypoint, scope, evaluator),
                workdir=action.workdir,
                user=action.user,
                volumes=_texts(action.volumes, scope, evaluator),
                network=action.network,
                memory=action.memory,
                cpus=action.cpus,
                pull=action.pull,
                env=texts,
            )
        case Celery() | Kubernetes():
            name, arguments = call_of(action)
            return PythonSpec(callable=name, kwargs=evaluator.render(arguments, scope), env=texts)


def render_request(wait: HttpWait, scope: Scope, evaluator: Evaluator) -> HttpSpec:
    """The request that a waiter makes, secrets left to it. Raises ``ExpressionError``."""
    return HttpSpec(
        method=wait.method,
        url=_text(wait.url, scope, evaluator),
        headers={name: evaluator.render_text(value, scope) for name, value in wait.headers.items()},
    )


def _texts(values: tuple[str, ...], scope: Scope, evaluator: Evaluator) -> tuple[str, ...]:
    return tuple(_text(value, scope, evaluator) for value in values)


def _text(value: str, scope: Scope, evaluator: Evaluator) -> str:
    """Text where no secret may stand, which deploying has made sure of."""
    parts = evaluator.render_text(value, scope)
    if any(isinstance(part, Secret) for part in parts):
        raise ExpressionError(f"{value}: secrets may stand in env and in HTTP headers only")
    return "".join(part for part in parts if isinstance(part, str))
