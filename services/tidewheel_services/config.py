"""Settings of the processes: from the environment, each with its default and its reason. CLI flags override them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

DEFAULT_API_PORT = 8420
#: More runs than any machine holds.
COUNT_MAX = 1_000_000_000


class BadSetting(Exception):
    """A variable of the environment has a value that makes no sense; the message says which."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to know of its surroundings."""

    #: Log URL: ``kafka://host:port?prefix=…&partitions=…`` or ``sqlite:///path``.
    log: str = "kafka://127.0.0.1:9092"
    #: Where the topics are that triggers name (``tidewheel.log.feeds``); empty: where the log is.
    feed: str = ""
    #: Read model: a libpq connection string.
    postgres: str = "postgresql://tidewheel@127.0.0.1:5432/tidewheel"
    #: Where the CLI finds the API.
    api: str = f"http://127.0.0.1:{DEFAULT_API_PORT}"
    #: Bearer token that the API asks for and the CLI sends; empty: the API serves loopback only.
    token: str = ""
    #: Where people see the API: notifications link there; empty: they have no links.
    public_url: str = ""
    #: Name of this process across restarts; empty: its host's name, numbered if that is taken.
    instance: str = ""
    #: Runs of one DAG that may wait for its ``max_runs`` before its triggers are put off and the API answers 429.
    waiting_runs_max: int = 1_000
    #: Live runs of one shard before it reads no triggers: bounds a scheduler's memory, at about 1 KiB a waiting run.
    shard_runs_max: int = 10_000

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """From ``TIDEWHEEL_LOG``, ``…_POSTGRES`` and so on; empty counts as unset. Raises ``BadSetting``."""
        env = os.environ if environment is None else environment
        plain = cls()
        return cls(
            log=env.get("TIDEWHEEL_LOG") or plain.log,
            feed=env.get("TIDEWHEEL_FEED", ""),
            postgres=env.get("TIDEWHEEL_POSTGRES") or plain.postgres,
            api=env.get("TIDEWHEEL_API") or plain.api,
            token=env.get("TIDEWHEEL_TOKEN", ""),
            public_url=env.get("TIDEWHEEL_PUBLIC_URL", ""),
            instance=env.get("TIDEWHEEL_INSTANCE", ""),
            waiting_runs_max=_number(env, "TIDEWHEEL_WAITING_RUNS_MAX", plain.waiting_runs_max),
            shard_runs_max=_number(env, "TIDEWHEEL_SHARD_RUNS_MAX", plain.shard_runs_max),
        )


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= COUNT_MAX:
        raise BadSetting(f"{name}={text!r} is no number from 1 to {COUNT_MAX:,}")
    return int(text)
