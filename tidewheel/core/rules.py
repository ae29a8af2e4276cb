"""What deciding needs beside state, command and time: the evaluator of expressions, and the terms that scheduler and
workers live by."""

from __future__ import annotations

import msgspec

from tidewheel.core.expressions import Evaluator

#: Outputs travel in events up to this size; larger ones belong in an artifact store. Bytes of JSON text.
OUTPUT_BYTES_MAX = 65_536

#: A checkpoint stays in memory until its task has ended. Bytes of JSON text.
CHECKPOINT_BYTES_MAX = 65_536

#: Of a run's id, in characters.
RUN_ID_LENGTH_MAX = 250

#: A run's inputs travel in its first event up to this size, in bytes of JSON text, and stay in memory while it lives.
INPUTS_BYTES_MAX = 65_536
#: One item of a mapped task, and all items of it together, in bytes of JSON text. They stay in memory while the run
#: lives.
ITEM_BYTES_MAX = 65_536
ITEMS_BYTES_MAX = 4_194_304
#: A rendered action travels in one mail up to this size, in bytes of JSON text.
ACTION_BYTES_MAX = 524_288


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The same for every aggregate a process owns.

    What was decided by them is in the events, so they may differ between versions.
    """

    evaluator: Evaluator
    #: A lease's length. The worker beats every third of it: two beats may be lost.
    lease_ms: int = 30_000
    #: How long a worker is on a pool's list without renewing. Twice the lease: an idle worker costs one event per
    #: half term.
    worker_term_ms: int = 60_000
    #: Scheduled runs of one DAG that may wait for ``max_runs`` before its schedule holds back further slots: keeps a
    #: ten-year backlog bounded.
    backlog_runs: int = 100
    #: Runs of one DAG that may wait for ``max_runs`` before further triggers are put off, and the bytes of inputs of
    #: its live runs. A waiting run is about 1 KiB of memory beside its inputs.
    waiting_runs_max: int = 1_000
    waiting_bytes_max: int = 16 * 2**20
    #: Tasks that one decision begins or ends beside what it was asked for; the rest of a run follows in steps of this
    #: size, a turn of the scheduler apart (``core.steps``).
    step: int = 200
    #: Live runs of all DAGs of one shard, and their bytes of inputs, before the shard reads no triggers.
    shard_runs_max: int = 10_000
    shard_bytes_max: int = 64 * 2**20
    #: Set while the shard in which is decided is at its bound.
    shard_full: bool = False
