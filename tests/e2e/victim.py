"""A process of Tidewheel that dies at a named step, as by SIGKILL: nothing of it is flushed, closed or told.

``python victim.py STEP listener|waiter|notifier …``: the command as it is otherwise. ``VICTIM_TRIES_S`` is the pause
between a notifier's tries, of which there are four then, instead of almost an hour.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tidewheel_services.cli.app import app

TRIES: Final = 4
#: Longer than any process here lives.
LINGER_MS: Final = 600_000.0


class Step(msgspec.Struct, frozen=True):
    """Death comes before this method (or function, of a module) is called, or ``after`` it has returned.

    Where ``when`` is given, only if it is true: of the method's result after it, else of its arguments. With ``lazy``
    nothing leaves the process before it is flushed; else it is on its way at once.
    """

    owner: str
    method: str
    after: bool = False
    when: Callable[..., bool] = lambda *_, **__: True
    lazy: bool = False


_FOLLOWER: Final = "tidewheel.log.kafka.feed:KafkaFollower"
_PRODUCER: Final = "tidewheel.log.kafka.producer:KafkaProducer"
_ROUNDS: Final = "tidewheel_services.waiter.rounds"
_OUTBOX: Final = "tidewheel_services.notifier.outbox:Outbox"

STEPS: Final = {
    "never": None,
    # A listener has the first partition of a topic that nobody has read, and has not said where that begins.
    "listener-beginning": Step(_FOLLOWER, "_begin_topic"),
    # It has said so, and read nothing.
    "listener-begun": Step(_FOLLOWER, "_begin_topic", after=True, when=bool),
    # It has records, and has judged none of them.
    "listener-read": Step(_FOLLOWER, "poll", after=True, when=lambda taken: len(taken.records) > 0),
    # What they ask for is on its way.
    "listener-sent": Step(_PRODUCER, "flush"),
    # It is durable, and the positions are where they were.
    "listener-flushed": Step(_PRODUCER, "flush", after=True),
    # The positions are behind what was read; what it asks for must be durable by then.
    "listener-committed": Step(_FOLLOWER, "commit", after=True, lazy=True),
    # The group takes its partitions away, for another member has come or gone.
    "listener-revoked": Step(_FOLLOWER, "_on_revoke"),
    # What was waited for has come, and nothing is said of it.
    "waiter-found": Step(_ROUNDS, "_report"),
    # The report is on its way.
    "waiter-reported": Step(_PRODUCER, "flush"),
    # It is durable, and this waiter does not know.
    "waiter-told": Step(_PRODUCER, "flush", after=True),
    # A notification is claimed, and not sent.
    "notifier-claimed": Step("tidewheel_services.notifier.delivery:Delivery", "send"),
    # It has arrived, and is not noted as sent.
    "notifier-sent": Step(_OUTBOX, "sent"),
    "notifier-noted": Step(_OUTBOX, "sent", after=True),
    # It is among the dead letters, and not noted as dead.
    "notifier-gave-up": Step(_OUTBOX, "dead"),
    # What an event leads to is about to be written.
    "notifier-writing": Step("tidewheel_services.notifier.store:Store", "write", when=lambda _, found, __: bool(found)),
    # It is written, with the position behind the event, and nobody has claimed it.
    "notifier-written": Step("tidewheel_services.notifier.couriers:Courier", "wake"),
}


def dies_at(step: Step) -> None:
    """Have this process die there."""
    module, _, name = step.owner.partition(":")
    owner: Any = importlib.import_module(module)
    if name:
        owner = getattr(owner, name)
    plain = getattr(owner, step.method)

    @functools.wraps(plain)
    def deadly(*arguments: Any, **named: Any) -> Any:
        if not step.after and step.when(*arguments, **named):
            os.kill(os.getpid(), signal.SIGKILL)
        result = plain(*arguments, **named)
        if step.after and step.when(result):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, step.method, deadly)


def flush_only() -> None:
    """Kafka's producers send nothing by themselves, as one might on a busy machine."""
    from tidewheel.log.kafka.producer import KafkaProducer

    plain = KafkaProducer.__init__

    def lazy(self: KafkaProducer, servers: str, extra: Mapping[str, str], prefix: str, linger_ms: float) -> None:
        plain(self, servers, extra, prefix, LINGER_MS)

    KafkaProducer.__init__ = lazy  # type: ignore[method-assign]


def impatient(pause_s: float) -> None:
    """A notifier's tries follow each other at once."""
    from tidewheel_services.notifier import main

    quick = functools.partial(main.Notifier, pauses_s=(pause_s,) * (TRIES - 1))
    main.Notifier = quick  # type: ignore[assignment, misc]


def main(step: str, *command: str) -> None:
    """Run it."""
    if (found := STEPS[step]) is not None:
        dies_at(found)
        if found.lazy:
            flush_only()
    if pause := os.environ.get("VICTIM_TRIES_S"):
        impatient(float(pause))
    app(list(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
