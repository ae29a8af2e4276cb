"""Triggers of a DAG: since when each of them takes records."""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from tidewheel.core.workflow import Trigger


def takes_since(
    before: Mapping[str, Trigger], since: Mapping[str, int], triggers: Mapping[str, Trigger], at: int
) -> Map[str, int]:
    """Of each trigger of a definition deployed at ``at`` the instant (ms) from which records are its own.

    One that the definition ``before`` has too, on the same topic, goes on: records that waited while it was deployed
    anew with another filter are still its records. A new one begins with its deployment.
    """
    return Map(
        {
            name: since.get(name, at) if name in before and before[name].kafka.topic == trigger.kafka.topic else at
            for name, trigger in triggers.items()
        }
    )
