"""Shell commands: ``/bin/sh -c`` in a session of its own.

Values reach the command by its environment and never become part of its text. ``TIDEWHEEL_OUTPUT`` names a file; JSON
that the command leaves in it becomes the task's output. ``TIDEWHEEL_CHECKPOINT`` names another (``checkpoint_file``).
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidewheel.core.assignment import ActionSpec, RunSpec
from tidewheel.task.outcome import OUTPUT_BYTES_MAX, Failed, Outcome, outcome_of_json, too_large
from tidewheel.worker.attempt import Attempt, StopReason
from tidewheel.worker.secrets import SecretUnavailable, resolve_all
from tidewheel_services.worker.checkpoint_file import LOOK_S, CheckpointFile
from tidewheel_services.worker.environment import described, inherited
from tidewheel_services.worker.messages import Exited, SpawnFailed
from tidewheel_services.worker.pump import Pump
from tidewheel_services.worker.site import Site
from tidewheel_services.worker.supervision import Lost, Process, close_all, output_pipes

SHELL = "/bin/sh"
#: What a shell adds to a signal's number for its own exit status.
_SIGNAL_STATUS = 128


class ProcessControl:
    """Reaches the process of an attempt."""

    def __init__(self, process: Process, grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s

    def stop(self, reason: StopReason) -> None:
        """Ask first where there is time."""
        if reason.gentle:
            self._process.stop(self._grace_s)
        else:
            self._process.kill()

    def extend(self, fence_at: float) -> None:
        """The lease was renewed."""
        self._process.extend(fence_at)


class Shell:
    """The executor of ``run`` actions."""

    killable = True

    def __init__(self, site: Site) -> None:
        self._site = site
        self._inherited = inherited(site.environment)

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        """Run the command to its end, or to its kill."""
        assert isinstance(action, RunSpec)
        output = self._site.supervisor.scratch / f"{id(attempt):x}.json"
        try:
            own = resolve_all(action.env, self._site.secrets)
        except SecretUnavailable as error:
            return Failed("setup", str(error))
        checkpoint = CheckpointFile(self._site.supervisor.scratch / f"{id(attempt):x}.checkpoint.json", attempt)
        env = {**self._inherited, **own, **described(attempt.assignment, output, checkpoint.path)}
        try:
            argv = (SHELL, "-c", action.command)
            word, pump = run_command(self._site, attempt, argv, env, checkpoint)
            return ended(word, attempt, output, pump.last_line(self._site.secrets.masker))
        except Lost as error:
            return Failed("worker_lost", f"{error}; the command was killed with it")
        finally:
            output.unlink(missing_ok=True)
            checkpoint.remove()

    def close(self) -> None:
        """Nothing of its own."""


def run_command(
    site: Site,
    attempt: Attempt,
    argv: Sequence[str],
    env: Mapping[str, str],
    checkpoint: CheckpointFile,
    *descriptors: int,
) -> tuple[Exited | SpawnFailed, Pump]:
    """Run a command of the attempt's to its end; its output goes to the attempt's log, what it leaves in
    ``checkpoint`` to the next attempt. Raises ``Lost``.

    It inherits ``descriptors``, whose numbers follow its arguments; they are closed here, whatever happens.
    """
    try:
        readers, writers = output_pipes()
    except OSError:
        close_all(descriptors)
        raise
    try:
        try:
            inherits = (*writers, *descriptors)
            process = site.supervisor.spawn(argv, env, site.project_dir, inherits, attempt.lease.fence_at)
        finally:
            close_all((*writers, *descriptors))
        try:
            attempt.attach(ProcessControl(process, site.grace_s))
            pump = Pump({readers[0]: "stdout", readers[1]: "stderr"}, process)
            word = pump.wait_exit(attempt.log, checkpoint.look, LOOK_S)
            checkpoint.look(last=True)
            return word, pump
        finally:
            attempt.detach()
            process.close()
    finally:
        close_all(readers)


def ended(word: Exited | SpawnFailed, attempt: Attempt, output: Path, last_line: str) -> Outcome:
    """The outcome of a command."""
    if isinstance(word, SpawnFailed):
        return Failed("setup", f"the command could not be started: {word.reason}")
    if word.left:
        attempt.log.remark(f"{word.left} processes of this attempt could not be killed")
    if word.fenced:
        return Failed("worker_lost", "the lease was not renewed in time, so the supervisor killed the command")
    said = f": {last_line}" if last_line else ""
    if word.status < 0:
        return Failed("signal", f"killed by {signal_name(-word.status)}{said}")
    if word.status > 0:
        inner = word.status - _SIGNAL_STATUS
        hint = f" (a process in it was killed by {signal_name(inner)})" if 0 < inner < signal.NSIG else ""
        return Failed("exit_code", f"exit status {word.status}{hint}{said}", word.status)
    return read_output(output)


def read_output(path: Path) -> Outcome:
    """The outcome of a command that ended well, by the output file it may have left."""
    try:
        # Whatever the command put there instead of a file must not hold up or mislead the worker.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return outcome_of_json(b"", "")
    except OSError as error:
        return Failed("output", f"the output file cannot be read: {error.strerror}")
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Failed("output", "TIDEWHEEL_OUTPUT is no regular file any more")
        if status.st_size > OUTPUT_BYTES_MAX:
            return too_large(status.st_size)
        return outcome_of_json(file.read(OUTPUT_BYTES_MAX + 1), "the content of TIDEWHEEL_OUTPUT")


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
