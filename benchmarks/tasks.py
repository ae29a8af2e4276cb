"""The work that the benchmark schedules: nothing at all."""


def noop() -> None:
    """Do nothing, so that all that is measured is the engine."""
