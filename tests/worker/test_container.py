"""Containers: by an engine whose containers are detached processes, and by a real Podman where it can run them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.conftest import StartWorker, wait_until, written
from tests.worker.engine import Engine, run
from tidewheel.core.assignment import ContainerSpec, Secret
from tidewheel.core.commands import ReportCancelled
from tidewheel_services.worker.container import ARGUMENTS_VARIABLE, ENGINE_VARIABLE
from tidewheel_services.worker.supervision import Supervisor

#: What Podman may need where containers run in a container.
PODMAN_ARGUMENTS = ("", "--runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1000:1000")


@pytest.fixture
def state(environment: dict[str, str], tmp_path: Path) -> Path:
    """Where the detached engine keeps its containers; the worker uses that engine."""
    program = tmp_path / "engine"
    script = Path(__file__).with_name("detached_engine.py")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {shlex.quote(str(script))} "$@"\n')
    program.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    environment.update({ENGINE_VARIABLE: str(program), "ENGINE_STATE": str(state)})
    return state


def container(*command: str, image: str = "some/image", **more: object) -> ContainerSpec:
    return ContainerSpec(image=image, command=command, **more)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def waits(marker: Path) -> ContainerSpec:
    """A container that says its process id, ignores TERM and does not end."""
    script = f"trap '' TERM; echo $$ > {shlex.quote(str(marker))}; while :; do sleep 1; done"
    return container("/bin/sh", "-c", script)


def test_its_words_variables_and_output(engine: Engine, process_worker: StartWorker, state: Path) -> None:
    process_worker()
    script = 'printf "%s|%s" "$1" "$DAY"; printf "{\\"run\\": \\"$TIDEWHEEL_RUN_ID\\"}" > "$TIDEWHEEL_OUTPUT"'
    spec = container("-c", script, "sh", "a; $(b)", entrypoint=("/bin/sh",), env={"DAY": ("a b",)})
    task = engine.assign(spec)
    assert engine.success(task) == {"run": "r1"}
    assert engine.text(task) == "a; $(b)|a b"
    assert not (state / "removed").exists()


def test_no_descriptor_is_closed_twice(
    engine: Engine, process_worker: StartWorker, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time it could be another task's pipe, which has got the number meanwhile."""
    close, failed = os.close, []

    def watched(descriptor: int) -> None:
        try:
            close(descriptor)
        except OSError:
            failed.append(descriptor)
            raise

    monkeypatch.setattr(os, "close", watched)
    process_worker()
    for _ in range(3):
        engine.success(engine.assign(container("/bin/true")))
    engine.success(engine.assign(run("true")))
    assert failed == []


def test_what_is_asked_of_the_engine(engine: Engine, process_worker: StartWorker, state: Path) -> None:
    process_worker()
    spec = container(
        "/bin/true",
        workdir="/srv",
        user="1000:1000",
        volumes=("/data:/data:ro",),
        network="none",
        memory="512m",
        cpus=1.5,
        pull="always",
    )
    assert engine.success(engine.assign(spec)) is None
    asked = (state / "arguments").read_text().split("\n")
    for pair in (
        ["--workdir", "/srv"],
        ["--user", "1000:1000"],
        ["--volume", "/data:/data:ro"],
        ["--network", "none"],
        ["--memory", "512m"],
        ["--cpus", "1.5"],
        ["--pull", "always"],
        ["--label", "tidewheel.dag=shop"],
    ):
        assert pair in [asked[at : at + 2] for at in range(len(asked))]


def test_a_secret_is_not_on_the_command_line(
    engine: Engine, process_worker: StartWorker, state: Path, environment: dict[str, str]
) -> None:
    environment["TIDEWHEEL_SECRET_TOKEN"] = "hush-hush"
    process_worker()
    spec = container("/bin/sh", "-c", 'echo "$TOKEN" | wc -c', env={"TOKEN": (Secret("token"),)})
    task = engine.assign(spec)
    engine.success(task)
    assert engine.text(task).strip() == "10"
    assert "hush" not in (state / "arguments").read_text()


def test_a_secret_cannot_steer_the_engine(
    engine: Engine, process_worker: StartWorker, state: Path, environment: dict[str, str]
) -> None:
    environment["TIDEWHEEL_SECRET_TOKEN"] = "hush-hush"
    process_worker()
    failure = engine.failure(engine.assign(container("/bin/true", env={"DOCKER_HOST": (Secret("token"),)})))
    assert failure.kind == "setup" and "DOCKER_HOST" in failure.message


def test_a_failure_has_the_exit_status_and_the_last_word(
    engine: Engine, process_worker: StartWorker, state: Path
) -> None:
    process_worker()
    failure = engine.failure(engine.assign(container("/bin/sh", "-c", "echo 'no disk' >&2; exit 75")))
    assert (failure.kind, failure.exit_code, failure.message) == ("exit_code", 75, "exit status 75: no disk")


def test_an_engine_that_fails_is_no_failure_of_the_command(
    engine: Engine, process_worker: StartWorker, state: Path
) -> None:
    process_worker()
    failure = engine.failure(engine.assign(container(image="missing")))
    assert failure.kind == "setup"
    assert failure.message == "engine could not run the container: no such image: missing"


def test_a_cancelled_one_is_gone_when_the_end_is_reported(
    engine: Engine, process_worker: StartWorker, state: Path, tmp_path: Path
) -> None:
    process_worker()
    marker = tmp_path / "pid"
    task = engine.assign(waits(marker))
    wait_until(lambda: written(marker), "the container runs", 30)
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task, 30), ReportCancelled)
    wait_until(lambda: not alive(int(marker.read_text())), "what ran in it is gone")
    assert (state / "removed").exists()


def test_a_killed_command_leaves_no_container(
    engine: Engine, process_worker: StartWorker, state: Path, tmp_path: Path, supervisor: Supervisor
) -> None:
    """As when the machine's memory runs out: nobody had time to say anything to the engine."""
    process_worker()
    marker = tmp_path / "pid"
    task = engine.assign(waits(marker))
    wait_until(lambda: written(marker), "the container runs", 30)
    # What runs the engine's command is the supervisor's child.
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    mine = [int(pid) for pid in children if b"container_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(mine) == 1
    os.killpg(mine[0], signal.SIGKILL)
    failure = engine.failure(task, 30)
    assert failure.kind == "signal"
    wait_until(lambda: not alive(int(marker.read_text())), "what ran in it is gone")


def test_without_an_engine_the_reason_is_clear(
    engine: Engine, process_worker: StartWorker, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["PATH"] = str(tmp_path)
    process_worker()
    failure = engine.failure(engine.assign(container("true")))
    assert failure.kind == "setup"
    assert "no container engine (docker: not installed; podman: not installed)" in failure.message


@pytest.fixture
def image(state: Path, environment: dict[str, str], tmp_path: Path) -> str:
    """An image built from nothing but a static busybox where Podman can run it; elsewhere the detached engine's."""
    podman, busybox = shutil.which("podman"), shutil.which("busybox")
    if podman is None or busybox is None:
        return "some/image"
    context = tmp_path / "image"
    context.mkdir()
    shutil.copy(busybox, context / "busybox")
    (context / "Containerfile").write_text('FROM scratch\nCOPY busybox /bin/sh\nCMD ["/bin/sh"]\n')
    name = "localhost/tidewheel-test"
    subprocess.run([podman, "build", "--tag", name, str(context)], capture_output=True)
    for arguments in PODMAN_ARGUMENTS:
        probe = [podman, "run", "--rm", *shlex.split(arguments), name, "/bin/sh", "-c", "exit 0"]
        if subprocess.run(probe, capture_output=True).returncode == 0:
            environment.update({ENGINE_VARIABLE: podman, ARGUMENTS_VARIABLE: arguments, "PATH": os.environ["PATH"]})
            return name
    return "some/image"


def test_a_container_of_the_best_engine_here(engine: Engine, process_worker: StartWorker, image: str) -> None:
    process_worker()
    script = 'echo "hello $WHO"; echo "{\\"who\\": \\"$WHO\\"}" > "$TIDEWHEEL_OUTPUT"'
    task = engine.assign(container("/bin/sh", "-c", script, image=image, env={"WHO": ("world",)}))
    assert engine.success(task) == {"who": "world"}
    assert engine.text(task).splitlines()[0] == "hello world"
    failure = engine.failure(engine.assign(container("/bin/sh", "-c", "exit 3", image=image)))
    assert (failure.kind, failure.exit_code) == ("exit_code", 3)


def test_the_engine_has_no_container_left_after_a_cancel(
    engine: Engine, process_worker: StartWorker, image: str, environment: dict[str, str]
) -> None:
    process_worker()
    task = engine.assign(container("/bin/sh", "-c", "echo up; while :; do :; done", image=image))
    wait_until(lambda: "up" in engine.text(task), "the container runs", 60)
    engine.stop(task, cancel=True)
    assert isinstance(engine.ending(task, 60), ReportCancelled)
    listing = [environment[ENGINE_VARIABLE], "ps", "--all", "--quiet", "--filter", f"label=tidewheel.task={task}"]
    left = subprocess.run(listing, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    assert left.stdout == ""
