"""Settings of the processes: from the environment, each with its default and its reason. CLI flags override them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

DEFAULT_API_PORT = 8420


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to know of its surroundings."""

    #: Log URL: ``kafka://host:port?prefix=…&partitions=…`` or ``sqlite:///path``.
    log: str = "kafka://127.0.0.1:9092"
    #: Read model: a libpq connection string.
    postgres: str = "postgresql://tidewheel@127.0.0.1:5432/tidewheel"
    #: Where the CLI finds the API.
    api: str = f"http://127.0.0.1:{DEFAULT_API_PORT}"
    #: Bearer token that the API asks for and the CLI sends; empty: the API serves loopback only.
    token: str = ""
    #: Name of this process across restarts; empty: its host's name, numbered if that is taken.
    instance: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """From ``TIDEWHEEL_LOG``, ``…_POSTGRES``, ``…_API``, ``…_TOKEN``, ``…_INSTANCE``; empty counts as unset."""
        env = os.environ if environment is None else environment
        plain = cls()
        return cls(
            log=env.get("TIDEWHEEL_LOG") or plain.log,
            postgres=env.get("TIDEWHEEL_POSTGRES") or plain.postgres,
            api=env.get("TIDEWHEEL_API") or plain.api,
            token=env.get("TIDEWHEEL_TOKEN", ""),
            instance=env.get("TIDEWHEEL_INSTANCE", ""),
        )
