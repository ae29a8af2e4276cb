"""What an expression of a task sees of its run, and the task's action rendered with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidewheel.core.assignment import ActionSpec, ContainerSpec, HttpSpec, PythonSpec, RunSpec, Secret, call_of
from tidewheel.core.expressions import Evaluator, ExpressionError, Scope
from tidewheel.core.mapping import instance_name
from tidewheel.core.state import Dag, RunState
from tidewheel.core.workflow import Celery, Container, Http, HttpWait, Kubernetes, Python, Run, Task, WorkerAction

#: How the ids of runs of slots begin; the slot follows.
SCHEDULED = "scheduled__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(at: int | None) -> str | None:
    """Milliseconds since the epoch as RFC 3339 text in UTC, without a fraction when it is zero."""
    if at is None:
        return None
    moment = _EPOCH + timedelta(milliseconds=at)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{at % 1000:03d}Z" if at % 1000 else "Z")


def parse_rfc3339(text: str) -> int | None:
    """Milliseconds since the epoch of what ``rfc3339`` writes; None: it is not written so."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    return ms if rfc3339(ms) == text else None


def slot_run_id(slot: int) -> str:
    """The id of a slot's run, whatever makes it: so there is one."""
    return f"{SCHEDULED}{rfc3339(slot)}"


def run_names(run: RunState, attempt: int = 0) -> Mapping[str, Any]:
    """The name ``run``."""
    return {
        "id": run.run_id,
        "kind": run.kind,
        "logical_date": rfc3339(run.logical_date),
        "interval": {"start": rfc3339(run.interval_start), "end": rfc3339(run.interval_end)},
        "attempt": attempt,
    }


def scope_of(state: Dag, run: RunState, task: str, attempt: int = 0) -> Scope:
    """The names that expressions of ``task`` see."""
    definition = state.definitions[run.version]
    written, item = definition.task(task), run.task(task).item

    return Scope(
        inputs=msgspec.json.decode(run.inputs),
        run=run_names(run, attempt or run.task(task).attempt),
        task=lambda name: task_name(run, name),
        env={**definition.workflow.env, **written.env},
        names={} if item is None else {written.as_: msgspec.json.decode(item)},
    )


def task_name(run: RunState, name: str) -> Mapping[str, Any]:
    """What ``tasks.NAME`` gives: the output of a mapped task is the list of its instances', unless a person gave it
    one."""
    seen = run.task(name)
    if seen.fan is None or seen.output is not None:
        return {"state": seen.phase, "output": _decoded(seen.output)}
    instances = (run.task(instance_name(name, index)) for index in range(seen.fan.items))
    return {"state": seen.phase, "output": [_decoded(instance.output) for instance in instances]}


def _decoded(output: str | None) -> Any:
    return None if output is None else msgspec.json.decode(output)


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
