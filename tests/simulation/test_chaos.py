"""Whatever happens, and then stops happening: every run ends, every slot comes back, the journal proves itself, and
who starts from the journal knows what those know who were there.

``TIDEWHEEL_SEEDS=5000`` plays more seeds, ``TIDEWHEEL_SEEDS=1234-1234`` one again.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from chaos import DAGS, Chaos, live_runs

from tidewheel.core.snapshot import decode_snapshot, encode_snapshot
from tidewheel.core.state import Pool
from tidewheel.log.interface import DEAD_LETTERS, JOURNALS, Append
from tidewheel.log.memory import MemoryLog
from tidewheel.runtime import scheduler as loop
from tidewheel.runtime.checker import check_log
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.shard import Shard
from tidewheel.wire.codec import decode

_FIRST, _, _LAST = os.environ.get("TIDEWHEEL_SEEDS", "100").rpartition("-")
SEEDS = range(int(_FIRST or 0), int(_LAST) + bool(_FIRST))
HERE = str(Path(__file__).parent)
#: Seeds of one test, so that a progress line is a handful of seconds at most.
CHUNK = 10


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_trouble_ends_and_so_does_everything_else(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        for seed in SEEDS[SEEDS.index(first) : SEEDS.index(first) + CHUNK]:
            try:
                play(seed, monkeypatch)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error!r}") from error
    finally:
        structlog.reset_defaults()


def test_the_same_seed_is_the_same_world_whatever_maps_order_their_keys_by() -> None:
    """Else a seed that failed could not be played again."""
    tell = "import test_chaos; test_chaos.tell(2)"
    found = [
        subprocess.run(
            [sys.executable, "-c", tell],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join([HERE, *sys.path])},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in (0, 1)
    ]
    assert found[0] == found[1]


def tell(seed: int) -> None:
    """Print what a season's trouble comes to."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    world = Chaos(seed)
    make_trouble(world)
    print(hashlib.sha256(repr(world.journal()).encode()).hexdigest())


def play(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One season."""
    monkeypatch.setattr(loop, "BATCH_RECORDS", random.Random(seed).choice([1, 4, 500]))
    world = Chaos(seed)
    make_trouble(world)
    assert_memory_is_the_journal(world)
    world.calm()
    for _ in range(200):
        if not any(live_runs(scheduler, dag) for scheduler in world.schedulers.values() for dag in DAGS):
            break
        world.advance(20_000, step_ms=10_000)
    world.advance(80_000, step_ms=10_000)  # whoever was promised a slot by mistake gives it back
    left = {dag: found for dag in DAGS for s in world.schedulers.values() if (found := live_runs(s, dag))}
    assert not left, f"these runs never end: {left}"
    report = check_log(world.log, settled=True)
    assert report.ok, report.violations[:5]
    assert_memory_is_the_journal(world)
    assert_nothing_is_held(world)
    assert_no_command_broke(world)


def make_trouble(world: Chaos) -> None:
    """Mishaps, and a little time between them, in which not everybody comes to act."""
    for _ in range(world.random.randint(10, 70)):
        world.mishap()
        if world.random.random() < 0.5:
            world.nudge()
        else:
            world.advance(world.random.choice([1, 500, 3_000, 12_000]), step_ms=3_000)


def assert_memory_is_the_journal(world: Chaos) -> None:
    """Each shard in memory is what the journal gives, with the snapshots and without; indexes too."""
    without = MemoryLog(world.log.partitions)
    for topic in JOURNALS:
        for partition in range(world.log.partitions):
            for record in world.log.reader({(topic, partition): 0}).read(1_000_000, 0):
                without.producer().send(Append(topic, record.key or b"", record.value, partition=partition))
    # One whose turn was cut short may have committed what it has yet to read.
    schedulers = [scheduler for scheduler in world.schedulers.values() if not scheduler._interrupted]
    shards = [shard for scheduler in schedulers for shard in scheduler._owned.values()]
    for shard in shards:
        if shard.epoch != current_epoch(world, shard):
            continue  # it went to another scheduler, or its owner has yet to see that a commit failed
        for source in (world.log, without):
            again = Shard(shard.number)
            bring_up_to_date([again], source, lambda: 0)
            assert again.aggregates == shard.aggregates, f"shard {shard.number} differs"
            for key, state in again.aggregates.items():
                assert decode_snapshot(key.kind, encode_snapshot(state)) == state


def current_epoch(world: Chaos, shard: Shard) -> int | None:
    """Under which the shard is owned now."""
    owner = world.log._group._holders.get(shard.number)
    return None if owner is None else owner.epochs.get(shard.number)


def assert_nothing_is_held(world: Chaos) -> None:
    """No slot is leaked, nobody waits."""
    pools = [
        state
        for scheduler in world.schedulers.values()
        for shard in scheduler._owned.values()
        for state in shard.aggregates.values()
        if isinstance(state, Pool)
    ]
    assert {pool.pool for pool in pools} == {"default", "small"}
    for pool in pools:
        counts: dict[str, Any] = {
            "leases": len(pool.leases),
            "waiting": len(pool.waiting),
            "used": pool.used,
            "held": len(pool.held),
            "live": len(pool.live),
            "heads": len(pool.heads),
            "queues": len(pool.queues),
        }
        assert not any(counts.values()), f"pool {pool.pool}: {counts}"


def assert_no_command_broke(world: Chaos) -> None:
    """Dead letters are refusals; none is a decision that failed."""
    for partition in range(world.log.partitions):
        for record in world.log.reader({(DEAD_LETTERS, partition): 0}).read(1_000_000, 0):
            letter: Any = decode(record.value or b"")
            assert letter.code != "failed", letter.reason
