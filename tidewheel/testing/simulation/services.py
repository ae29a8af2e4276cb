"""What answers when a waiter asks: a few services of others, which come up, go down and vanish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["up", "down", "gone"]
#: Their addresses.
URLS: Final = ("http://a", "http://b", "http://c")


class Services:
    """How each of them is now, since when, and how often it has come to be so. ``clock`` is the world's, in ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._states: dict[str, State] = dict.fromkeys(URLS, "down")
        self._since = dict.fromkeys(URLS, 0)
        self._turns = dict.fromkeys(URLS, 0)
        #: What a service that was up ever said, with its address; and who was found gone.
        self.said: set[tuple[str, str]] = set()
        self.gone: set[str] = set()

    def turn(self, url: str, state: State) -> None:
        """It is so from now on."""
        if state != self._states[url]:
            self._states[url], self._since[url] = state, self._clock()
            self._turns[url] += 1

    def up_for_ms(self, url: str) -> int:
        """How long it has been up; 0: it is not."""
        return self._clock() - self._since[url] if self._states[url] == "up" else 0

    def ask(self, url: str) -> tuple[State, str]:
        """How it is, and what it says: something else each time that it comes up."""
        answer = f'{{"status":200,"headers":{{}},"text":"{url} {self._turns[url]}"}}'
        if self._states[url] == "up":
            self.said.add((url, answer))
        elif self._states[url] == "gone":
            self.gone.add(url)
        return self._states[url], answer
