"""Functions registered by name, run in the worker's own threads.

Python cannot end a thread from outside. So a function that ran too long, or whose lease is about to end, is reported
at once, its ``context.cancelled`` is set and whatever it does later is ignored; but it keeps its slot until it
returns.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from tidewheel.core.assignment import ActionSpec, PythonSpec
from tidewheel.task.call import Function, call, takes_context
from tidewheel.task.context import Context
from tidewheel.task.outcome import Failed, Outcome
from tidewheel.worker.attempt import Attempt
from tidewheel.worker.secrets import Secrets, SecretUnavailable, resolve_all


class _Voice:
    """The worker's ear for a function in its own process."""

    __slots__ = ("_attempt", "_env", "_secrets")

    def __init__(self, attempt: Attempt, secrets: Secrets) -> None:
        self._attempt = attempt
        self._secrets = secrets
        self._env: dict[str, str] | None = None

    def progress(self, progress: str | None) -> None:
        if progress is not None:
            self._attempt.show(progress)

    def checkpoint(self, checkpoint: str) -> None:
        self._attempt.save(checkpoint)

    def log(self, text: str) -> None:
        self._attempt.log.write("stdout", text.encode("utf-8", "replace"))

    def environment(self) -> Mapping[str, str]:
        if self._env is None:
            action = self._attempt.action
            texts = action.env if isinstance(action, PythonSpec) else {}
            self._env = resolve_all(texts, self._secrets)
        return self._env


class Functions:
    """The executor of registered functions."""

    killable = False

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._functions: dict[str, tuple[Function, bool]] = {}

    def register(self, name: str, function: Function) -> None:
        """Run ``function`` for actions ``python: name``."""
        if not callable(function):
            raise TypeError(f"function '{name}' is not callable: {function!r}")
        self._functions[name] = (function, takes_context(function))

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def unknown(self, name: str) -> Failed:
        """Why ``name`` cannot be run."""
        near = difflib.get_close_matches(name, self._functions, 1)
        hint = f"; did you mean '{near[0]}'?" if near else f" among its {len(self._functions)} functions"
        return Failed("setup", f"this worker has no function '{name}'{hint}")

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        """Call the function in this thread."""
        assert isinstance(action, PythonSpec)
        function, with_context = self._functions[action.callable]
        context = Context(attempt.assignment, _Voice(attempt, self._secrets), attempt.cancelled)
        try:
            return call(function, action.kwargs, context, with_context)
        except SecretUnavailable as error:
            return Failed("setup", str(error))

    def close(self) -> None:
        """Nothing to let go of."""
