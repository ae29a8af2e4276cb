"""The waiter in a simulation: its rounds, over open waits as the simulated read model has them, a feed in memory and
services that answer from a table."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from tidewheel.log.feed import Feed
from tidewheel.testing.simulation.expressions import PlainEvaluator
from tidewheel.testing.simulation.outsiders import At, LossyProducer
from tidewheel_services.waiter.polling import Came, Hopeless, Look, NotYet, Polled
from tidewheel_services.waiter.records import Awaited, Records
from tidewheel_services.waiter.rounds import OpenWaits, Rounds

if TYPE_CHECKING:
    from tidewheel.testing.simulation.world import TroubledWorld

T = TypeVar("T", bound=msgspec.Struct)


class SimulatedWaiter:
    """``at`` is called at each point of its turns. It always works, also where another one does: the worst case."""

    def __init__(self, world: TroubledWorld, name: str, at: At) -> None:
        self._world = world
        self._name = name
        self._at = at
        self.begin_anew()

    def turn(self) -> bool:
        """One round; true if something came, or there is more to be read."""
        self._at("look")
        ended = self._rounds.ended
        waits = OpenWaits(self._open("http", Polled), self._open("kafka", Awaited))
        more = self._rounds.go(waits, self._producer, self._clock())
        return more or self._rounds.ended > ended

    def begin_anew(self) -> None:
        """With an empty memory."""
        feed = cast(Feed, self._world.feed)
        records = Records(lambda: feed, PlainEvaluator(lambda: None), self._name, self._clock)
        self._rounds = Rounds(records, self._ask)
        self._producer = LossyProducer(self._world, lambda: self._at("report"), lambda: self._at("reported"))

    def lose_session(self) -> None:
        """It holds nothing."""

    def _clock(self) -> float:
        return self._world.now / 1000

    def _open(self, waits_for: str, kind: type[T]) -> dict[tuple[str, str, str, int], T]:
        read_model = self._world.read_model
        assert read_model is not None, "a waiter needs a read model"
        details = read_model.open_waits(waits_for)
        found = {}
        for key in sorted(details):
            try:
                found[key] = msgspec.json.decode(details[key], type=kind)
            except msgspec.ValidationError:
                continue  # its expressions did not evaluate: the DAG ends it by itself
        return found

    def _ask(self, polled: Polled) -> Future[Look]:
        """The answer is that of when it is asked, and comes after a while."""
        state, answer = self._world.services.ask(polled.request.url)
        looks: dict[str, Look] = {
            "up": Came(answer),
            "down": NotYet("answered 503"),
            "gone": Hopeless("no such host"),
        }
        look = looks[state]
        asked: Future[Look] = Future()
        self._world.after(self._world.random.choice([0, 0, 900, 9_000]), lambda: asked.set_result(look))
        return asked
