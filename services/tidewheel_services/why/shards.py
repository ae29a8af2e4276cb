"""Whether anybody decides for a DAG or a pool: without that nothing else matters."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidewheel_services.why.reason import Reason

#: A takeover takes a session, 6 s, and a moment; what waits longer waits for something else.
SILENT_MS = 15_000
#: The projector says that it lives each few seconds.
PROJECTOR_SILENT_S = 30.0


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a shard: from the log who could own it and what is undecided there, from the read model what
    became of its journal."""

    number: int
    #: Why the log does not say; empty: it does.
    fault: str = ""
    schedulers: int = 1
    #: Commands that nobody has decided yet, and how long the oldest has been waiting.
    undecided: int = 0
    undecided_ms: int = 0
    #: Why its owner stopped it; empty: it goes on.
    stopped: str = ""
    #: Why the read model follows its journal no further.
    unread: str = ""


def why_silent(shards: list[Shard], projector_silent_s: float | None) -> Iterator[Reason]:
    """Reasons that hold for everything in these shards. The projector: silent for so long; None: none ever was."""
    if fault := next((shard.fault for shard in shards if shard.fault), ""):
        yield Reason(code="log_unavailable", message=f"the log cannot be reached, so nothing is decided: {fault}")
    elif shards and not shards[0].schedulers:
        message = "no scheduler is at work, so nothing is decided; start one with `tidewheel scheduler`"
        yield Reason(code="no_scheduler", message=message)
    for shard in shards:
        if shard.stopped:
            message = (
                f"shard {shard.number} stands still: {shard.stopped}; `tidewheel journal repair` says what may be done"
            )
            yield Reason(code="shard_stopped", message=message)
        elif not shard.fault and shard.schedulers and shard.undecided and shard.undecided_ms >= SILENT_MS:
            waits = "1 command waits" if shard.undecided == 1 else f"{shard.undecided:,} commands wait"
            since = f"the oldest for {shard.undecided_ms // 1000:,} s"
            message = (
                f"in shard {shard.number} {waits} to be decided, {since}: it has no owner, or its scheduler is behind"
            )
            yield Reason(code="shard_silent", message=message)
        if shard.unread:
            message = (
                f"what is said here may be old: the read model does not follow shard {shard.number}: {shard.unread}"
            )
            yield Reason(code="read_model_behind", message=message)
    if projector_silent_s is None or projector_silent_s > PROJECTOR_SILENT_S:
        since = (
            "no projector was ever at work"
            if projector_silent_s is None
            else (f"nothing was heard of the projector for {projector_silent_s:,.0f} s")
        )
        yield Reason(code="read_model_behind", message=f"what is said here may be old: {since}")
