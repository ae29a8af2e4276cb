"""How much may wait: what a DAG and a shard take in before further runs are put off.

Nothing here refuses what is owed. Slots of a schedule wait in its cursor, triggers on their topic, and who asked is
told to ask again; reports, cancels and timers are decided always.
"""

from __future__ import annotations

from tidewheel.core.rules import Rules
from tidewheel.core.state import Dag


def has_room(state: Dag, rules: Rules) -> bool:
    """Whether one more run of the DAG may wait for its turn."""
    waiting = len(state.queued_runs)
    return waiting < rules.waiting_runs_max and (not waiting or state.input_bytes < rules.waiting_bytes_max)


def why_no_room(state: Dag, rules: Rules) -> str:
    """Why no more run of the DAG may wait for its turn; empty if one may."""
    if has_room(state, rules):
        return ""
    waiting, bound = len(state.queued_runs), rules.waiting_runs_max
    return f"{waiting:,} runs of DAG '{state.dag}' wait for their turn (at most {bound:,} may)"


def has_much_room(state: Dag, rules: Rules) -> bool:
    """Whether a DAG that was put off goes on: at half the bound, so that it does not stop and go with each run."""
    waiting = len(state.queued_runs)
    return waiting <= rules.waiting_runs_max // 2 and (not waiting or state.input_bytes <= rules.waiting_bytes_max // 2)


def is_full(runs: int, input_bytes: int, rules: Rules, *, before: bool) -> bool:
    """Whether a shard with so many live runs takes in no triggers; one that was full goes on at four fifths."""
    if before:
        return runs * 5 > rules.shard_runs_max * 4 or input_bytes * 5 > rules.shard_bytes_max * 4
    return runs >= rules.shard_runs_max or input_bytes >= rules.shard_bytes_max
