"""The work that the benchmarks schedule: next to nothing, so that all that is measured is the engine."""


def noop() -> None:
    """Do nothing."""


def numbers(count: int) -> list[int]:
    """The items of a fan-out."""
    return list(range(count))


def same(number: int) -> int:
    """An instance of it."""
    return number


def join(numbers: list[int], count: int) -> int:
    """Their sum; fails unless every one is there, in the items' order."""
    if numbers != list(range(count)):
        raise ValueError(f"expected {count} numbers in order, found {len(numbers)}")
    return sum(numbers)
