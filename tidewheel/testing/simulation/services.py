"""What answers when a waiter asks: a few services of others, which come up, go down and vanish."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["up", "down", "gone"]
#: Their addresses.
URLS: Final = ("http://a", "http://b", "http://c")


class Services:
    """How each of them is now, and how often it has come to be so."""

    def __init__(self) -> None:
        self._states: dict[str, State] = dict.fromkeys(URLS, "down")
        self._turns = dict.fromkeys(URLS, 0)
        #: What a service that was up ever said, with its address.
        self.said: set[tuple[str, str]] = set()

    def turn(self, url: str, state: State) -> None:
        """It is so from now on."""
        self._states[url] = state
        self._turns[url] += 1

    def ask(self, url: str) -> tuple[State, str]:
        """How it is, and what it says: something else each time that it comes up."""
        answer = f'{{"status":200,"headers":{{}},"text":"{self._turns[url]}"}}'
        if self._states[url] == "up":
            self.said.add((url, answer))
        return self._states[url], answer
