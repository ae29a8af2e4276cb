"""The campaign in figures: the file, the line of a cycle, the table, and whether it is a pass."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.chaos.outcome import FAILOVER_S_MAX, Outcome
from tests.chaos.verdict import Verdict


class Spread(msgspec.Struct, frozen=True):
    """Seconds, by nearest rank."""

    p50: float
    p95: float
    max: float


class Kind(msgspec.Struct, kw_only=True):
    """All cycles of one kind of fault."""

    cycles: int = 0
    missed: int = 0
    struck: int = 0
    inside_transaction: int = 0
    failover_s: Spread | None = None


class HeldEnds(msgspec.Struct, kw_only=True):
    """Commits that the network kept back: what the broker made of them when their time was over."""

    held: int = 0
    refused: int = 0
    unanswered: int = 0
    #: Taken for the transaction that they were meant for: its end had not come yet.
    in_time: int = 0
    #: Taken while a later transaction was open, on which they then acted; the proofs must hold all the same.
    acted_on_another: int = 0


class Figures(msgspec.Struct, kw_only=True):
    """What is written to ``build/chaos.json``."""

    seed: int
    brokers: int
    cycles: int
    kills_and_pauses: int
    inside_transaction: int
    held_end_txn: HeldEnds
    lost: int
    doubled: int
    ledger_without_lease: int
    invented: int
    untold: int
    violations: int
    stale_reports_refused: int
    failover_s: Spread | None
    silent_shards: int
    runs: int
    accepted_triggers: int
    landed: int
    told_again: int
    tasks: int
    attempts: int
    repeated_effects: int
    own_ends: int
    wall_s: float
    by_kind: dict[str, Kind]
    faults: list[str]


def figures(
    outcomes: Sequence[Outcome], verdict: Verdict, *, seed: int, brokers: int, refused: int, wall_s: float
) -> Figures:
    """Add it all up."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.card.kind].append(outcome)
    return Figures(
        seed=seed,
        brokers=brokers,
        cycles=len(outcomes),
        kills_and_pauses=sum(outcome.struck for outcome in outcomes),
        inside_transaction=sum(outcome.inside and outcome.struck for outcome in outcomes),
        held_end_txn=_held(outcomes),
        lost=len(verdict.lost),
        doubled=len(verdict.doubled),
        ledger_without_lease=len(verdict.ledger_without_lease),
        invented=len(verdict.invented),
        untold=len(verdict.untold),
        violations=len(verdict.violations),
        stale_reports_refused=refused,
        failover_s=_spread(outcomes),
        silent_shards=sum(len(outcome.silent) for outcome in outcomes),
        runs=verdict.runs,
        accepted_triggers=verdict.accepted,
        landed=verdict.landed,
        told_again=verdict.told_again,
        tasks=verdict.tasks,
        attempts=verdict.attempts,
        repeated_effects=verdict.repeated_effects,
        own_ends=sum(len(outcome.own_ends) for outcome in outcomes),
        wall_s=round(wall_s, 1),
        by_kind={kind: _kind(found) for kind, found in sorted(by_kind.items())},
        faults=verdict.faults(),
    )


def failures(found: Figures, *, vacuous: bool = True, late: bool = True) -> list[str]:
    """Why it is no pass. A campaign in which nothing happened has proved nothing."""
    failed = list(found.faults)
    if late and found.failover_s is not None and found.failover_s.p95 >= FAILOVER_S_MAX:
        failed.append(f"p95 of the fail-over is {found.failover_s.p95:g} s, not below {FAILOVER_S_MAX:g} s")
    if vacuous:
        for name in ("runs", "landed", "kills_and_pauses", "inside_transaction", "stale_reports_refused"):
            if not getattr(found, name):
                failed.append(f"{name} is 0: this campaign proves nothing")
    return failed


def line(number: int, outcome: Outcome) -> str:
    """One cycle."""
    late = f"{max(outcome.failover_s.values()):5.1f} s" if outcome.failover_s else "      -"
    parts = [f"{number:4} {outcome.card!s:31} {outcome.victim:9} {late}", f"runs +{outcome.runs_ended:<3}"]
    parts.append(f"refused {outcome.refused:<2}" if outcome.refused else " " * 10)
    parts.append("inside" if outcome.inside else "      ")
    if outcome.held is not None:
        when = "later transaction open" if outcome.held.other_open else "none open"
        parts.append(f"broker: error {outcome.held.error}, {when}")
    if outcome.silent:
        parts.append(f"SILENT {list(outcome.silent)}")
    if outcome.own_ends:
        parts.append(f"ended by itself: {', '.join(outcome.own_ends)}")
    return " ".join([*parts, outcome.note, f"({outcome.took_s:.1f} s)"])


def write(found: Figures, path: Path) -> None:
    """As JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def table(found: Figures, console: Console) -> None:
    """For people."""
    kinds = Table(title="Faults", title_justify="left")
    for column in (
        "kind",
        "cycles",
        "missed",
        "killed or paused",
        "inside a transaction",
        "fail-over p50",
        "p95",
        "max",
    ):
        kinds.add_column(column, justify="left" if column == "kind" else "right")
    for name, kind in found.by_kind.items():
        spread = kind.failover_s
        shown = [f"{value:.1f} s" for value in (spread.p50, spread.p95, spread.max)] if spread else ["-"] * 3
        kinds.add_row(name, str(kind.cycles), str(kind.missed), str(kind.struck), str(kind.inside_transaction), *shown)
    console.print(kinds)
    summary = Table(title="Campaign", title_justify="left")
    summary.add_column("figure")
    summary.add_column("value", justify="right")
    plain = msgspec.to_builtins(found)
    for name, value in plain.items():
        if name in ("by_kind", "faults"):
            continue
        text = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else f"{value}"
        summary.add_row(name.replace("_", " "), text)
    console.print(summary)


def _kind(outcomes: Sequence[Outcome]) -> Kind:
    return Kind(
        cycles=len(outcomes),
        missed=sum(not outcome.victim for outcome in outcomes),
        struck=sum(outcome.struck for outcome in outcomes),
        inside_transaction=sum(outcome.inside and outcome.struck for outcome in outcomes),
        failover_s=_spread(outcomes),
    )


def _spread(outcomes: Sequence[Outcome]) -> Spread | None:
    values = sorted(value for outcome in outcomes for value in outcome.failover_s.values())
    if not values:
        return None
    p50, p95 = (values[math.ceil(len(values) * part) - 1] for part in (0.5, 0.95))
    return Spread(round(p50, 2), round(p95, 2), round(values[-1], 2))


def _held(outcomes: Sequence[Outcome]) -> HeldEnds:
    found = HeldEnds()
    for held in (outcome.held for outcome in outcomes if outcome.held is not None):
        found.held += 1
        found.unanswered += held.error is None
        found.refused += bool(held.error)
        found.acted_on_another += held.error == 0 and held.other_open
        found.in_time += held.error == 0 and not held.other_open
    return found
