"""What connects a kind of action to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidewheel.core.assignment import ActionSpec
from tidewheel.task.outcome import Outcome

if TYPE_CHECKING:
    from tidewheel.worker.attempt import Attempt


class Executor(Protocol):
    """Runs actions of one kind, many at once, each in a thread of the worker's."""

    @property
    def killable(self) -> bool:
        """Whether ``run`` ends soon after the attempt's control was told to stop, with nothing left running.

        If not, a timeout or a lost lease is reported at once, and the slot stays taken until ``run`` returns.
        """

    def run(self, attempt: Attempt, action: ActionSpec) -> Outcome:
        """Run to the end and say how it ended. If the attempt was stopped, the worker reports that instead."""

    def close(self) -> None:
        """The worker is gone; let go of everything."""
