"""What goes wrong at the command line, told in one clear line: what, where, what to do. Never a traceback for it.

Exit codes: 0 done; 1 the answer is no (mistakes in a file, a run that failed, a refused request), or a fault of ours,
with its traceback; 2 it could not be asked (wrong usage, a server that cannot be reached); 130 interrupted.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Context

REFUSED = 1
UNREACHABLE = 2
INTERRUPTED = 130
#: Faults of the surroundings whose message is written for people.
_TOLD = (
    ("tidewheel.log.interface", "LogError"),
    ("tidewheel.runtime.recovery", "JournalBroken"),
    ("tidewheel_projections.rebuild", "ReplayFailed"),
    ("tidewheel.worker.naming", "NameTaken"),
    ("tidewheel.worker.worker", "WorkerBroken"),
    ("tidewheel_services.api.main", "CannotServe"),
    ("tidewheel_services.config", "BadSetting"),
    ("tidewheel_services.exposition", "CannotExpose"),
    ("tidewheel_services.instance", "NameTaken"),
    ("tidewheel_services.notifier.delivery", "Unusable"),
    ("tidewheel_services.notifier.targets", "BadTargets"),
)
#: Classes of SQLSTATE by which Postgres says that a statement is wrong, and those of them by which it is right all the
#: same: a right is missing, or the tables are.
_STATEMENT_WRONG = ("22", "23", "42")
_STATEMENT_RIGHT = ("42501", "42P01")
#: What a message about the default address of a server holds, by the variable that names another server.
_DEFAULTS = {
    "TIDEWHEEL_LOG": ("127.0.0.1:9092",),
    "TIDEWHEEL_POSTGRES": ('"127.0.0.1", port 5432',),
}


class CliError(Exception):
    """Ends the command with ``message`` on stderr and ``code``."""

    def __init__(self, message: str, code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code


class Commands(TyperGroup):
    """The command group that turns faults into messages, in one place for every command."""

    def invoke(self, ctx: Context) -> Any:
        """Run the command; end by exit code."""
        try:
            return super().invoke(ctx)
        except CliError as error:
            complain(str(error))
            raise typer.Exit(error.code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError as error:
            if not _reader_has_gone():
                # As it is, typer would end without a word.
                raise RuntimeError("a connection broke, and nobody had foreseen it") from error
            # The reader went away (`| head`): nobody is left to be told, also not by the interpreter's last flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            known = explain(error)
            if known is None:
                raise
            complain(known)
            raise typer.Exit(UNREACHABLE) from None


def complain(message: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"error: {message}\n")


def explain(error: BaseException) -> str | None:
    """A sentence for a fault of the surroundings; None for a fault of ours, which deserves its traceback."""
    module = type(error).__module__
    if module.startswith("psycopg"):
        state = getattr(error, "sqlstate", None) or ""
        if state.startswith(_STATEMENT_WRONG) and state not in _STATEMENT_RIGHT:
            return None
        told = (
            f"Postgres: {_first_line(error)}. Is it running, and is TIDEWHEEL_POSTGRES right? `tidewheel doctor` looks"
        )
        return told + near_dev("TIDEWHEEL_POSTGRES", told)
    if any(_is_a(error, module, name) for module, name in _TOLD):
        return str(error) + near_dev("TIDEWHEEL_LOG", str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return None


def near_dev(variable: str, told: str) -> str:
    """Where to look when nobody said where things are and the default address gave no answer: who has only
    `tidewheel dev` running never chose that address."""
    if os.environ.get(variable) or not any(address in told for address in _DEFAULTS[variable]):
        return ""
    return ". With `tidewheel dev DIR`: `source DIR/.tidewheel/environment` first"


def _reader_has_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more."""
    watched = select.poll()
    try:
        watched.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return bool(watched.poll(0))


def _is_a(error: BaseException, module: str, name: str) -> bool:
    """Whether it is of that class, without importing its module for it: who raised it has."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(error, kind)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
