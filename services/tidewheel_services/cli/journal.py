"""The command `journal repair`: what may be done about a journal that does not prove itself, and doing it."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.cli.options import Json, LogUrl, settings
from tidewheel_services.cli.output import write, write_json

if TYPE_CHECKING:
    from tidewheel.log.interface import Log
    from tidewheel.runtime.repair import Repaired
    from tidewheel.runtime.repair_plan import Plan

Place = Annotated[str, typer.Argument(help="One journal partition, such as events/3; without it, all are examined.")]
Apply = Annotated[bool, typer.Option("--apply", help="Write the repair. Without it nothing is written.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the history; needed with --apply.")]
Actor = Annotated[str, typer.Option("--actor", help="Who repairs, for the history; default: user:<login>.")]
GiveUp = Annotated[int, typer.Option("--give-up", min=0, help="Let go of exactly so many events that are lost.")]
Keep = Annotated[
    int | None, typer.Option("--keep", min=0, help="Where history forks: keep the branch with this offset.")
]


def repair(
    place: Place = "",
    apply: Apply = False,
    reason: Reason = "",
    actor: Actor = "",
    give_up: GiveUp = 0,
    keep: Keep = None,
    log: LogUrl = "",
    as_json: Json = False,
) -> None:
    """Say what may be done about a journal that does not prove itself, and with --apply do it.

    Nothing is deleted: a repair is an event that says which records are void, by whom and why. Exit code 1 if a journal
    is broken and was not repaired.
    """
    from tidewheel.log.opening import open_log
    from tidewheel.runtime.repair_plan import examine

    if apply and not (place and reason):
        raise CliError("--apply needs one PLACE, such as events/3, and a --reason", UNREACHABLE)
    if keep is not None and not place:
        raise CliError("--keep needs one PLACE, such as events/3", UNREACHABLE)
    opened = open_log(settings(log=log).log)
    try:
        opened.check_topics()
        plans = [examine(opened, *each, keep=keep) for each in _places(opened, place)]
        done = _apply(opened, plans[0], actor, reason, give_up) if apply else None
    finally:
        opened.close()
    _tell(plans, done, place, as_json)
    if done is None and any(plan.verdict != "whole" for plan in plans):
        raise typer.Exit(REFUSED)


def _places(opened: Log, place: str) -> list[tuple[str, int]]:
    from tidewheel.log.interface import JOURNALS

    if not place:
        return [(topic, partition) for topic in JOURNALS for partition in range(opened.partitions)]
    topic, _, number = place.partition("/")
    if topic not in JOURNALS or not number.isdecimal() or int(number) >= opened.partitions:
        known = f"{' or '.join(JOURNALS)}, a slash and a number below {opened.partitions}"
        raise CliError(f"'{place}' is no journal partition: write {known}, such as events/0", UNREACHABLE)
    return [(topic, int(number))]


def _apply(opened: Log, plan: Plan, actor: str, reason: str, give_up: int) -> Repaired:
    from tidewheel.runtime.repair import NotRepaired, repair

    who = actor or f"user:{getpass.getuser()}"
    try:
        return repair(opened, plan, actor=who, reason=reason, now=time.time_ns() // 1_000_000, give_up=give_up)
    except NotRepaired as error:
        raise CliError(str(error)) from error


def _tell(plans: list[Plan], done: Repaired | None, place: str, as_json: bool) -> None:
    import msgspec

    if as_json:
        plain = [msgspec.to_builtins(plan) for plan in plans]
        write_json({"plans": plain, "repaired": None if done is None else msgspec.to_builtins(done)})
        return
    broken = [plan for plan in plans if plan.verdict != "whole"]
    if done is not None:
        write(f"{place}: repaired by {done.repairs} events; {done.inputs} inputs were sent again")
        write("its shard goes on within seconds; `tidewheel verify` reports the repair")
        return
    for plan in broken:
        _describe(plan)
    if not broken:
        write(f"journal: {len(plans)} partitions prove themselves, nothing to repair")


def _describe(plan: Plan) -> None:
    where = f"{plan.topic}/{plan.partition}"
    write(f"{where}: {plan.verdict.upper()}")
    write(f"  found:   {plan.report}")
    write(f"  because: {plan.why}")
    if plan.verdict == "unsure":
        if plan.branches:
            write(f"  branches end at offsets {', '.join(map(str, plan.branches))}: choose with --keep OFFSET")
        write("  nothing can be done without a person's decision: see docs/runbook-journal.md")
        return
    write(f"  would go on behind event {plan.shard_seq} at offset {plan.last_good_offset}")
    for stretch in plan.stretches:
        records = "1 record" if stretch.records == 1 else f"{stretch.records} records"
        write(f"  would void offsets {stretch.void_from} to {stretch.void_to - 1} ({records}): {stretch.why}")
    for again in plan.inputs_again:
        write(f"  would send {again.topic}/{plan.partition} offsets {again.from_offset} to {again.to_offset - 1} again")
    give_up = f" --give-up {plan.unproven}" if plan.unproven else ""
    if plan.unproven:
        write(
            f"  would lose {plan.unproven} events for good: first try to bring them back, see docs/runbook-journal.md"
        )
    write(f"  to do it: tidewheel journal repair {where} --apply{give_up} --reason '…'")
