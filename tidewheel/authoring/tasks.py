"""Tasks of a DAG: what they were given, and which come after which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, Unpack

from tidewheel.authoring.expression import Expression
from tidewheel.authoring.keys import (
    Approval,
    AwaitedRecord,
    ChildKeys,
    ContainerOptions,
    Duration,
    KubernetesOptions,
    Method,
    OtherRun,
    PolledHttp,
    StepKeys,
    TaskKeys,
)
from tidewheel.authoring.nodes import Given, Keys, given
from tidewheel.authoring.places import Place, here
from tidewheel.core.workflow import OnTimeout

if TYPE_CHECKING:
    from tidewheel.authoring.dags import Dag

Tasks = TypeVar("Tasks", "Task", Iterable["Task"])
_open: Final[list[Dag]] = []


class Task:
    """A task of a DAG. Given to another task, it stands for its output."""

    def __init__(self, dag: Dag, name: str, keys: Keys, place: Place) -> None:
        self.dag = dag
        self.id = str(name)
        self.keys = keys
        if isinstance(needs := keys.get("needs"), Given):
            self.keys = {**keys, "needs": Given(_named(needs.value), needs.place, needs.name)}
        self.place = place
        #: What ``>>`` put before it, and where.
        self.after: list[tuple[Task, Place]] = []
        dag.tasks.append(self)

    @property
    def output(self) -> Expression:
        """Its output."""
        return Expression(f"tasks.{self.id}.output")

    @property
    def state(self) -> Expression:
        """How it ended."""
        return Expression(f"tasks.{self.id}.state")

    def __rshift__(self, later: Tasks) -> Tasks:
        place = here()
        for one in _each(later):
            one.after.append((self, place))
        return later

    def __lshift__(self, earlier: Tasks) -> Tasks:
        place = here()
        self.after.extend((one, place) for one in _each(earlier))
        return earlier

    def __rrshift__(self, earlier: Iterable[Task]) -> Task:
        place = here()
        self.after.extend((one, place) for one in _each(earlier))
        return self

    def __rlshift__(self, later: Iterable[Task]) -> Task:
        place = here()
        for one in _each(later):
            one.after.append((self, place))
        return self

    def __str__(self) -> str:
        return str(self.output)

    def __repr__(self) -> str:
        return f"Task({self.id!r})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a task has 'output' and 'state', no {name!r}; a field of its output is .output.{name}")


def shell(name: str, command: str, /, **keys: Unpack[TaskKeys]) -> Task:
    """A task that runs a command by ``/bin/sh -c``. Values reach it by ``env``."""
    place = here()
    positional: Keys = {"id": Given(name, place, 0), "run": Given(command, place, 1)}
    return Task(open_dag(f"shell({name!r}, …)"), name, {**positional, **given(keys, place)}, place)


def http(
    name: str,
    url: str | Expression,
    /,
    *,
    method: Method | None = None,
    headers: dict[str, Any] | None = None,
    json: Any = None,
    body: str | Expression | None = None,
    expect: int | list[int] | None = None,
    **keys: Unpack[TaskKeys],
) -> Task:
    """A task that makes one HTTP request. Its output is the answer."""
    place = here()
    request = given({"method": method, "headers": headers, "json": json, "body": body, "expect": expect}, place)
    positional: Keys = {"id": Given(name, place, 0), "http": {"url": Given(url, place, 1)} | request}
    return Task(open_dag(f"http({name!r}, …)"), name, {**positional, **given(keys, place)}, place)


def switch(
    name: str,
    /,
    *branches: tuple[Expression | str | bool, Task | str | Sequence[Task | str]],
    otherwise: Task | str | Sequence[Task | str] | None = None,
    **keys: Unpack[StepKeys],
) -> Task:
    """A task that decides how the run goes on: the first branch whose condition holds. A branch is a condition and the
    tasks that it lets go on; they need the switch by being named here. Tasks that only other branches name are skipped.
    """
    place = here()
    named = [tasks for _, tasks in branches] + ([] if otherwise is None else [otherwise])
    written: list[dict[str, Any]] = [{"if": condition, "then": _named(tasks)} for condition, tasks in branches]
    if otherwise is not None:
        written.append({"else": _named(otherwise)})
    positional: Keys = {"id": Given(name, place, 0), "switch": Given(written, place)}
    made = Task(open_dag(f"switch({name!r}, …)"), name, {**positional, **given(keys, place)}, place)
    for tasks in named:
        for one in [tasks] if isinstance(tasks, Task | str) else tasks:
            if isinstance(one, Task):
                one.after.append((made, place))
    return made


def container(
    name: str,
    image: str | Expression,
    /,
    *command: Any,
    options: ContainerOptions | None = None,
    **keys: Unpack[TaskKeys],
) -> Task:
    """A task that runs a container of ``image`` with ``command`` to its end. Values also reach it by ``env``."""
    return _of_image("container", name, image, command, {**(options or {})}, {**keys}, here())


def wait_for(
    name: str,
    /,
    *,
    time: str | date | timedelta | Expression | None = None,
    approval: Approval | None = None,
    run: OtherRun | None = None,
    http: PolledHttp | None = None,
    kafka: AwaitedRecord | None = None,
    timeout: Duration | None = None,
    on_timeout: OnTimeout | None = None,
    **keys: Unpack[StepKeys],
) -> Task:
    """A task that waits for one thing, without a worker: ``time`` (a duration since it became ready, or an instant), an
    ``approval``, the end of another DAG's ``run``, an answer by ``http``, or a record
    of ``kafka``."""
    place = here()
    condition = given(
        {"time": time, "approval": approval, "run": run, "http": http, "kafka": kafka}
        | {"timeout": timeout, "on_timeout": on_timeout},
        place,
    )
    positional: Keys = {"id": Given(name, place, 0), "wait_for": condition}
    return Task(open_dag(f"wait_for({name!r}, …)"), name, {**positional, **given(keys, place)}, place)


def kubernetes(
    name: str,
    image: str | Expression,
    /,
    *command: Any,
    options: KubernetesOptions | None = None,
    **keys: Unpack[TaskKeys],
) -> Task:
    """A task that runs a Kubernetes Job of ``image`` with ``command`` to its end."""
    return _of_image("kubernetes", name, image, command, {**(options or {})}, {**keys}, here())


def _of_image(
    action: str,
    name: str,
    image: str | Expression,
    command: Iterable[Any],
    options: dict[str, Any],
    keys: dict[str, Any],
    place: Place,
) -> Task:
    spec = {"image": Given(image, place, 1)} | given({"command": list(command) or None, **options}, place)
    positional: Keys = {"id": Given(name, place, 0), action: spec}
    return Task(open_dag(f"{action}({name!r}, …)"), name, {**positional, **given(keys, place)}, place)


def celery(
    name: str,
    app: str,
    task: str,
    /,
    *args: Any,
    kwargs: dict[str, Any] | None = None,
    queue: str | None = None,
    **keys: Unpack[TaskKeys],
) -> Task:
    """A task that hands ``task`` to the Celery application ``app`` and waits for its result."""
    place = here()
    spec = {"app": Given(app, place, 1), "task": Given(task, place, 2)}
    spec |= given({"args": list(args) or None, "kwargs": kwargs, "queue": queue}, place)
    positional: Keys = {"id": Given(name, place, 0), "celery": spec}
    return Task(open_dag(f"celery({name!r}, …)"), name, {**positional, **given(keys, place)}, place)


def trigger(
    name: str, dag: Dag | str, /, *, inputs: Mapping[str, Any] | None = None, **keys: Unpack[ChildKeys]
) -> Task:
    """A task that starts a run of another DAG, and goes on when there is one."""
    return _child("trigger", name, dag, inputs, given(keys, here()), here())


def workflow(
    name: str, dag: Dag | str, /, *, inputs: Mapping[str, Any] | None = None, **keys: Unpack[ChildKeys]
) -> Task:
    """A task that starts a run of another DAG, and ends like it: a sub-workflow."""
    return _child("workflow", name, dag, inputs, given(keys, here()), here())


def _child(action: str, name: str, dag: Dag | str, inputs: Mapping[str, Any] | None, keys: Keys, place: Place) -> Task:
    target = dag if isinstance(dag, str) else dag.id
    positional: Keys = {
        "id": Given(name, place, 0),
        action: Given(target, place, 1),
        **given({"inputs": inputs}, place),
    }
    return Task(open_dag(f"{action}({name!r}, …)"), name, {**positional, **keys}, place)


def enter(dag: Dag) -> None:
    """Tasks belong to this DAG from now on."""
    if _open:
        raise RuntimeError(f"a DAG within a DAG: end the block of '{_open[-1].id}' first")
    _open.append(dag)


def leave() -> None:
    """Tasks belong to no DAG any more."""
    _open.clear()


def open_dag(what: str = "") -> Dag:
    """The DAG whose block this is. Raises ``RuntimeError`` outside of one."""
    if not _open:
        raise RuntimeError(f"{what} stands outside of a DAG: write it within `with dag(...):`")
    return _open[-1]


def in_dag() -> bool:
    """Whether this is the block of a DAG."""
    return bool(_open)


def _named(needs: Any) -> Any:
    """Ids for tasks, everything else as it is."""
    if isinstance(needs, list | tuple):
        return [_named(one) for one in needs]
    return needs.id if isinstance(needs, Task) else needs


def _each(tasks: Task | Iterable[Task]) -> list[Task]:
    found = [tasks] if isinstance(tasks, Task) else list(tasks)
    for one in found:
        if not isinstance(one, Task):
            raise TypeError(f"'>>' stands between tasks, or a task and a list of them; got {one!r}")
    return found
