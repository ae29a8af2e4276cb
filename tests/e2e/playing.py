"""Examples at work: all files of a directory in one `tidewheel dev`, and the commands that their heads say to type."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from click.testing import Result
from typer.testing import CliRunner

from tests.e2e.running import eventually
from tidewheel_services.cli.app import app

ENDED = frozenset({"success", "failed", "cancelled"})
#: Machines are noisy; nothing here takes more than a few seconds by itself.
WAIT_S = 120.0
_COMMAND = re.compile(r"^\s+tidewheel (?!dev )(.*)$", re.MULTILINE)
#: Where the examples lie, as their heads say it.
_SHOWN = "examples/features/"
#: Commands that change nothing, and may be asked again.
_LOOKS = ("logs", "show", "runs", "waits", "events")


def head(file: Path) -> str:
    """The comment at a workflow file's beginning, or the docstring of a Python file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return ast.get_docstring(ast.parse(text), clean=False) or ""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#"))
    return "\n".join(lines)


def commands(file: Path) -> list[list[str]]:
    """What a head says to type, without the first word; what starts the engine is left out."""
    return [shlex.split(words) for words in _COMMAND.findall(head(file))]


@dataclass(frozen=True)
class Site:
    """Where the examples run."""

    flows: Path
    env: dict[str, str]

    def call(self, *words: str) -> Result:
        """One command, in this process, as the installed program would do it."""
        known: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TIDEWHEEL_")}
        wide = {"COLUMNS": "200", "NO_COLOR": "1"}
        return CliRunner().invoke(app, list(words), env={**known, **self.env, **wide})

    def document(self, *words: str) -> Any:
        """What a command writes for programs; it may say that the answer is no."""
        done = self.call(*words, "--json")
        assert done.exit_code in (0, 1), f"{words}: {done.output}"
        return json.loads(done.stdout)

    def get(self, *path: str) -> Any:
        """From the API; None if it is not there."""
        answer = httpx.get("/".join((self.env["TIDEWHEEL_API"], "api/v1/dags", *path)), timeout=30)
        assert answer.status_code in (200, 404), answer.text
        return answer.json() if answer.status_code == 200 else None

    def ended(self, dag: str, run_id: str) -> Run:
        """The run, once it has."""

        def over() -> bool:
            run = self.get(dag, "runs", run_id)
            return run is not None and run["state"] in ENDED

        eventually(over, WAIT_S, f"the end of {dag} {run_id}")
        return Run(self, self.document("show", dag, run_id))


@dataclass(frozen=True)
class Run:
    """A run as `tidewheel show` has it."""

    site: Site
    shown: dict[str, Any]

    @property
    def state(self) -> str:
        return str(self.shown["run"]["state"])

    @property
    def states(self) -> dict[str, str]:
        """Of its tasks, instances among them."""
        return {task["task"]: task["state"] for task in self.shown["tasks"]}

    def output(self, task: str) -> Any:
        """What the task handed on."""
        run = self.shown["run"]
        return self.site.get(run["dag"], "runs", run["run_id"], "tasks", task)["output"]

    def attempts(self, task: str) -> list[dict[str, Any]]:
        """In order; of a fan-out those of all its instances."""
        found = [one for one in self.shown["attempts"] if one["task"].partition("[")[0] == task.partition("[")[0]]
        return [one for one in found if "[" not in task or one["task"] == task]

    def ends(self, task: str) -> list[str]:
        """How each attempt ended: the kind of its failure, else its state."""
        return [one["kind"] or one["state"] for one in self.attempts(task)]

    def at_once(self, task: str) -> int:
        """The most attempts that were at work together."""
        steps = [(one["started_at"], 1) for one in self.attempts(task) if one["started_at"]]
        steps += [(one["ended_at"], -1) for one in self.attempts(task) if one["started_at"]]
        most = now = 0
        for _, step in sorted(steps):
            now += step
            most = max(most, now)
        return most


@dataclass
class Play:
    """One example: its commands are done one after another, as by somebody who follows its head."""

    site: Site
    file: Path
    run_id: str = ""
    todo: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.todo = commands(self.file)

    @property
    def head(self) -> str:
        """What its file says of itself."""
        return head(self.file)

    def begin(self) -> None:
        """If the first command starts a run, do it, so that the examples run beside each other."""
        if self.todo and self.todo[0][0] == "trigger":
            self.start()
            self.todo.insert(0, ["begun"])

    def start(self) -> None:
        """The next command starts a run."""
        words = self._next()
        if words != ["begun"]:
            self.run_id = self.site.document(*(word for word in words if word != "--wait"))["run_id"]

    def run(self) -> Run:
        """The next command starts a run; that run, once it has ended."""
        self.start()
        return self.now()

    def now(self) -> Run:
        """The run that was started last, once it has ended."""
        return self.site.ended(self.file.stem, self.run_id)

    def do(self, said: str = "", exit_code: int = 0) -> Result:
        """The next command, as it stands. What it shows may take a moment to be there."""
        words = self._next()
        done = self.site.call(*words)
        if words[0] in _LOOKS and said not in done.output:

            def look() -> Result | None:
                again = self.site.call(*words)
                return again if said in again.output else None

            done = eventually(look, WAIT_S, f"{said!r} by {words}")
        assert (done.exit_code, said in done.output) == (exit_code, True), f"{words}: {done.output}"
        return done

    def _next(self) -> list[str]:
        place = f"{self.site.flows}/"
        return [self.run_id if word == "RUN" else word.replace(_SHOWN, place) for word in self.todo.pop(0)]
