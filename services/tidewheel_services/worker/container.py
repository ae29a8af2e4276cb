"""Containers, by the command line of Docker or Podman: ``run --rm`` in the foreground, like a shell command.

Killing that command does not end the container, which is the engine's and not its child. So each has a *leash*: a
process outside of the attempt that removes the container when the command's process ends in any other way than by the
container's end. The worker reports an end only once the leash has let go.

``/tidewheel`` in the container is a directory of the attempt, with the files of ``TIDEWHEEL_OUTPUT`` and
``TIDEWHEEL_CHECKPOINT``. Variables that hold a secret reach the engine by its environment, never by its command line,
which everybody on the machine can read.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tidewheel.core.assignment import ActionSpec, ContainerSpec, Secret
from tidewheel.core.mail import AssignTask
from tidewheel.task.outcome import Failed, Outcome
from tidewheel.worker.attempt import Attempt
from tidewheel.worker.secrets import SecretUnavailable, resolve_all
from tidewheel_services.worker.checkpoint_file import CheckpointFile
from tidewheel_services.worker.container_main import ENDED, ENGINE_FAILED
from tidewheel_services.worker.environment import described, inherited
from tidewheel_services.worker.messages import Exited
from tidewheel_services.worker.shell import ended, run_command
from tidewheel_services.worker.site import Site
from tidewheel_services.worker.supervision import Lost, python_argv

#: The engine to use, by name or path; without it the first of ``ENGINES`` that answers.
ENGINE_VARIABLE = "TIDEWHEEL_CONTAINER_ENGINE"
#: More arguments for each ``run``, as a shell would read them.
ARGUMENTS_VARIABLE = "TIDEWHEEL_CONTAINER_ARGS"
ENGINES = ("docker", "podman")
PLACE = "/tidewheel"
PROBE_S = 20.0
#: How long the removal of a container may take before the log says that it may still run.
REMOVE_S = 60.0
#: Variables that steer the engine itself.
_STEERING = frozenset({"PATH", "HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
_STEERING_PREFIXES = ("DOCKER_", "BUILDKIT_", "CONTAINER", "PODMAN_", "STORAGE_", "XDG_", "LD_", "GO", "SSL_", "DBUS_")


class NoEngine(Exception):
    """No container engine answers; the message says what each one said."""


class Engine:
    """Finds the engine when a container first wants it, and again as long as there is none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        wanted = environment.get(ENGINE_VARIABLE)
        self.arguments = tuple(shlex.split(environment.get(ARGUMENTS_VARIABLE, "")))
        self._candidates = (wanted,) if wanted else ENGINES
        self._environment = inherited(environment)
        self._found = ""
        self._lock = threading.Lock()

    def path(self) -> str:
        """The engine's program. Raises ``NoEngine``."""
        with self._lock:
            if not self._found:
                self._found = self._probe()
            return self._found

    def _probe(self) -> str:
        complaints = []
        for name in self._candidates:
            path = shutil.which(name, path=self._environment.get("PATH"))
            if path is None:
                complaints.append(f"{name}: not installed")
                continue
            try:
                # Docker's answers only if its daemon does.
                probe = subprocess.run(
                    [path, "version"], env=self._environment, capture_output=True, text=True, timeout=PROBE_S
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                complaints.append(f"{name}: {error}")
                continue
            if probe.returncode == 0:
                return path
            said = probe.stderr.strip().splitlines()
            complaints.append(f"{name}: {said[-1] if said else f'exit status {probe.returncode}'}")
        raise NoEngine(
            f"this worker has no container engine ({'; '.join(complaints)}): install Docker or Podman, "
            f"name one by {ENGINE_VARIABLE}, or send the task to a pool whose workers have one"
        )


class Leash:
    """Removes the container of a command that ended in any other way than by the container's end.

    Who starts the command hands it the ``descriptor`` and closes it here, once: by its end the leash knows theirs.
    """

    def __init__(self, engine: str, name: str, environment: Mapping[str, str]) -> None:
        reader, self.descriptor = os.pipe()
        # What says nothing has an engine that failed or was killed: then nobody knows what is left.
        script = f'[ "$(cat)" = {ENDED.decode()} ] || exec "$@" >/dev/null 2>&1'
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", script, "sh", engine, "rm", "--force", "--volumes", name],
                stdin=reader,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError:
            os.close(self.descriptor)
            raise
        finally:
            os.close(reader)

    def wait(self, limit_s: float) -> bool:
        """Wait until it has let go; false: it has not. The command must have ended."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True


class Containers:
    """The executor of ``container`` actions."""

    killable = True

    def __init__(self, site: Site) -> None:
        self._site = site
        self._inherited = inherited(site.environment)
        self._engine = Engine(site.environment)

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        """Run the container to its end, or to its removal."""
        assert isinstance(action, ContainerSpec)
        try:
            engine = self._engine.path()
            hidden = resolve_all(_secret_variables(action), self._site.secrets)
        except (NoEngine, SecretUnavailable) as error:
            return Failed("setup", str(error))
        steering = sorted(name for name in hidden if steers(name))
        if steering:
            return Failed(
                "setup",
                f"{steering[0]} would steer the container engine itself, so it cannot carry a secret to the container: "
                "use another name",
            )
        place = self._site.supervisor.scratch / f"{id(attempt):x}"
        place.mkdir()
        try:
            # The container's user may be any.
            place.chmod(0o777)
            return self._run(attempt, action, engine, hidden, place)
        except Lost as error:
            return Failed("worker_lost", f"{error}; the container is removed")
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def close(self) -> None:
        """Nothing of its own."""

    def _run(
        self, attempt: Attempt, action: ContainerSpec, engine: str, hidden: Mapping[str, str], place: Path
    ) -> Outcome:
        name = container_name(attempt.assignment)
        command = [engine, *run_arguments(action, attempt.assignment, name, place), *self._engine.arguments]
        for variable in hidden:
            command += ["--env", variable]
        argv = python_argv("tidewheel_services.worker.container_main", *command, action.image, *words(action))
        checkpoint = CheckpointFile(place / "checkpoint.json", attempt)
        leash = Leash(engine, name, self._inherited)
        try:
            word, pump = run_command(
                self._site,
                attempt,
                argv,
                {**self._inherited, **hidden},
                checkpoint,
                leash.descriptor,
            )
        finally:
            if not leash.wait(REMOVE_S):
                attempt.log.remark(f"container {name} could not be removed within {REMOVE_S:g} s; it may still run")
        last_line = pump.last_line(self._site.secrets.masker)
        if isinstance(word, Exited) and word.status == ENGINE_FAILED and not word.fenced:
            return Failed("setup", f"{Path(engine).name} could not run the container: {last_line or 'it says nothing'}")
        return ended(word, attempt, place / "output.json", last_line)


def container_name(mail: AssignTask) -> str:
    """The container of an attempt. Its labels say whose it is."""
    identity = f"{mail.dag}/{mail.run_id}/{mail.task}/{mail.attempt}/{mail.receiver}"
    return f"tidewheel-{hashlib.sha256(identity.encode()).hexdigest()[:20]}"


def run_arguments(action: ContainerSpec, mail: AssignTask, name: str, place: Path) -> list[str]:
    """``run`` and what belongs between it and the image, but for variables with secrets."""
    arguments = ["run", "--rm", "--name", name, "--pull", action.pull, "--volume", f"{place}:{PLACE}"]
    labels = {"dag": mail.dag, "run_id": mail.run_id, "task": mail.task, "attempt": mail.attempt}
    for label, value in labels.items():
        arguments += ["--label", f"tidewheel.{label}={value}"]
    for option in ("workdir", "user", "network", "memory", "cpus"):
        value = getattr(action, option)
        if value:
            arguments += [f"--{option}", str(value)]
    for volume in action.volumes:
        arguments += ["--volume", volume]
    if action.entrypoint:
        # Docker takes one word here; the others go before the command (see ``words``).
        arguments += ["--entrypoint", action.entrypoint[0]]
    plain = {
        variable: "".join(part for part in text if isinstance(part, str))
        for variable, text in action.env.items()
        if not any(isinstance(part, Secret) for part in text)
    }
    for variable, value in {
        **plain,
        **described(mail, Path(PLACE, "output.json"), Path(PLACE, "checkpoint.json")),
    }.items():
        arguments += ["--env", f"{variable}={value}"]
    return arguments


def words(action: ContainerSpec) -> tuple[str, ...]:
    """What stands behind the image."""
    return (*action.entrypoint[1:], *action.command)


def steers(variable: str) -> bool:
    """Whether a variable of this name would change what the engine itself does."""
    upper = variable.upper()
    return upper in _STEERING or upper.startswith(_STEERING_PREFIXES)


def _secret_variables(action: ContainerSpec) -> dict[str, tuple[str | Secret, ...]]:
    return {name: text for name, text in action.env.items() if any(isinstance(part, Secret) for part in text)}
