"""``@task``: a Python function that becomes a task where it is called in a DAG's block, and stays itself elsewhere.

Workers import it by its name, ``module:function``; so it must have one that leads to it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from tidewheel.authoring.keys import Changes, TaskKeys
from tidewheel.authoring.nodes import Given, given
from tidewheel.authoring.places import Place, here
from tidewheel.authoring.tasks import Task, in_dag, open_dag
from tidewheel.core.nearest import did_you_mean

if TYPE_CHECKING:
    from tidewheel.authoring.dags import Dag

P = ParamSpec("P")
R = TypeVar("R")
_NAMELESS: Final = "nameless"
_UNNAMED: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class TaskFunction(Generic[P, R]):
    """A function as a task. ``function`` is the function itself, for tests and for other code."""

    def __init__(self, function: Callable[P, R], keys: dict[str, Given]) -> None:
        self.function = function
        self._keys = keys
        functools.update_wrapper(self, function)

    def override(self, **keys: Unpack[Changes]) -> TaskFunction[P, R]:
        """The same function with other keys, such as an ``id``, for one task of several."""
        return TaskFunction(self.function, self._keys | given(keys, here()))

    def __call__(self, *arguments: Any, **named: Any) -> Task:
        """Within a DAG's block a task with these arguments; elsewhere, as in a worker, a plain call."""
        if not in_dag():
            return cast(Task, self.function(*arguments, **named))
        dag, place = open_dag(), here()
        dag.functions.append((self, place))
        passed: dict[str, Given] = {}
        python = f"{self.__module__}:{self.name_in_module}"
        if why := self._refusal():
            dag.note(place, "not_importable", f"{why}: a worker imports what it runs; write `def` in a module")
            python = self.name
        else:
            passed = self._bind(arguments, named, dag, place)
        keys = {"id": Given(self.name, place), "python": Given(python, place), **self._keys}
        name = keys["id"].value
        return Task(dag, name, {**keys, "with": passed} if passed else keys, place)

    @property
    def name(self) -> str:
        """The function's own name."""
        name = str(getattr(self.function, "__name__", type(self.function).__name__))
        return name if name.isidentifier() else _NAMELESS

    @property
    def name_in_module(self) -> str:
        """The way to it within its module."""
        return str(getattr(self.function, "__qualname__", self.name))

    def is_found(self) -> bool:
        """Whether its name leads to it, once its module is complete."""
        target: object = sys.modules.get(self.__module__)
        for part in self.name_in_module.split("."):
            target = getattr(target, part, None)
        return target is self.function or (isinstance(target, TaskFunction) and target.function is self.function)

    def _refusal(self) -> str:
        """Why no worker could import it; empty if one can."""
        if self.name == _NAMELESS:
            return "a lambda has no name"
        if "<locals>" in self.name_in_module:
            return f"{self.name!r} is made within another function"
        if not inspect.isroutine(self.function):
            return f"a {type(self.function).__name__} is no function"
        if self.__module__ == "__main__":
            return f"{self.name!r} is in the program that is being run"
        return ""

    def _bind(self, arguments: tuple[Any, ...], named: dict[str, Any], dag: Dag, place: Place) -> dict[str, Given]:
        """The arguments by the names of the parameters, as far as they fit; mistakes are noted."""

        def note(message: str, argument: str = "") -> None:
            dag.note(place, "bad_arguments", f"{self.name}() {message}", argument)

        try:
            # The worker gives the context.
            parameters = {n: one for n, one in inspect.signature(self.function).parameters.items() if n != "context"}
        except (TypeError, ValueError):
            note("does not say what its parameters are")
            return {}
        kinds = {name: one.kind for name, one in parameters.items()}
        if unnamed := [name for name, kind in kinds.items() if kind in _UNNAMED]:
            note(f"has the parameter {unnamed[0]!r}, which cannot be given by name: those of a task must be")
            return {}
        unknown = [] if inspect.Parameter.VAR_KEYWORD in kinds.values() else named.keys() - kinds.keys()
        for name in unknown:
            note(f"has no parameter {name!r}{did_you_mean(name, kinds)}", name)
        if unknown:
            return {}
        try:
            bound = inspect.Signature(list(parameters.values())).bind(*arguments, **named).arguments
        except TypeError as error:
            note(f"does not take this: {error}")
            return {}
        positions = dict(zip(bound, range(len(arguments)), strict=False))
        passed: dict[str, Given] = {}
        for name, value in bound.items():
            if kinds[name] is inspect.Parameter.VAR_KEYWORD:
                passed |= {key: Given(item, place, key) for key, item in value.items()}
            else:
                passed[name] = Given(value, place, positions.get(name, name))
        return passed


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...


@overload
def task(**keys: Unpack[TaskKeys]) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...


def task(
    function: Callable[P, R] | None = None, /, **keys: Unpack[TaskKeys]
) -> TaskFunction[P, R] | Callable[[Callable[P, R]], TaskFunction[P, R]]:
    """Make tasks of a function: ``@task``, or ``@task(retries=2, timeout="5m")`` with keys for all of them."""
    shared = given(keys, here())
    return TaskFunction(function, shared) if function is not None else lambda one: TaskFunction(one, shared)
