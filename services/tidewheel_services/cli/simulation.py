"""``tidewheel simulate``: the whole engine under virtual time and under fire, seed by seed."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel_services.cli.faults import REFUSED, UNREACHABLE, CliError
from tidewheel_services.cli.options import Json
from tidewheel_services.cli.output import console, plain, took, write, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewheel.testing.simulation.campaign import Tally
    from tidewheel.testing.simulation.season import Finding

_SEEDS = re.compile(r"(?:(?P<first>\d+)-)?(?P<last>\d+)")
#: Violations that people are shown; programs get all.
_SHOWN = 20


def simulate(
    faults: Annotated[
        bool, typer.Option("--faults", help="Let everything go wrong; without it, only people act.")
    ] = False,
    seeds: Annotated[str, typer.Option(help="How many seeds, from 0; or the first and the last: 1200-1299.")] = "200",
    steps: Annotated[int, typer.Option(min=1, help="Steps of each seed.")] = 2_000,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to play in.")] = 1,
    plant: Annotated[
        str, typer.Option(help="Break the engine by this bug first; stop at the first seed that finds it.")
    ] = "",
    plants: Annotated[bool, typer.Option("--plants", help="List the bugs that can be planted.")] = False,
    as_json: Json = False,
) -> None:
    """Play the whole engine under virtual time and judge it; the same seed plays the same again. Exit code 1 on a
    violation."""
    from tidewheel.testing.simulation.campaign import Campaign, run_campaign
    from tidewheel_projections.simulated import SimulatedProjector
    from tidewheel_services.waiter.simulated import SimulatedWaiter
    from tidewheel_services.waiter.simulated_bugs import ALL_BUGS

    if plants:
        _list(as_json)
        return
    if plant and plant not in ALL_BUGS:
        raise CliError(f"there is no bug '{plant}'; `tidewheel simulate --plants` lists them", UNREACHABLE)
    campaign = Campaign(
        seeds=_range(seeds),
        steps=steps,
        faults=faults,
        read_model=SimulatedProjector,
        waiter=SimulatedWaiter,
        plant=ALL_BUGS[plant].plant if plant else None,
        stop_at_first=bool(plant),
    )
    tally = run_campaign(campaign, jobs=jobs, progress=None if as_json else _progress(len(campaign.seeds)))
    options = f"{'--faults ' if faults else ''}{f'--plant {plant} ' if plant else ''}--steps {steps}"
    if as_json:
        write_json(_document(tally, steps, options))
    else:
        _tell(tally, options)
    if tally.findings:
        raise typer.Exit(REFUSED)


def _range(seeds: str) -> range:
    match = _SEEDS.fullmatch(seeds)
    if match is None:
        raise CliError(f"--seeds: '{seeds}' is neither a number nor two with a dash, as 1200-1299", UNREACHABLE)
    found = range(int(match["first"]), int(match["last"]) + 1) if match["first"] else range(int(match["last"]))
    if not found:
        raise CliError(f"--seeds: '{seeds}' is no seed at all", UNREACHABLE)
    return found


def _list(as_json: bool) -> None:
    from tidewheel_services.waiter.simulated_bugs import ALL_BUGS

    if as_json:
        write_json([{"name": name, "what": bug.what} for name, bug in ALL_BUGS.items()])
        return
    for name, bug in ALL_BUGS.items():
        write(f"{name:30} {bug.what}")


def _replay(finding: Finding, options: str) -> str:
    return f"tidewheel simulate {options} --seeds {finding.seed}-{finding.seed}"


def _document(tally: Tally, steps: int, options: str) -> dict[str, object]:
    violations = [
        {"seed": found.seed, "step": found.step, "what": found.what, "replay": _replay(found, options)}
        for found in tally.findings
    ]
    return {
        "seeds": tally.seeds,
        "steps": tally.steps,
        "steps_per_seed": steps,
        "events": tally.events,
        "runs": tally.runs,
        "virtual_s": tally.virtual_ms // 1000,
        "wall_s": round(tally.wall_s, 1),
        "faults": dict(sorted(tally.faults.items())),
        "violations": violations,
    }


def _progress(seeds: int) -> Callable[[Tally], None] | None:
    """A line that is written over, on a terminal only."""
    if not sys.stderr.isatty():
        return None

    def show(tally: Tally) -> None:
        line = f"{tally.seeds}/{seeds} seeds, {tally.steps:,} steps, {len(tally.findings)} violations"
        sys.stderr.write(f"\r{line}, {took(tally.wall_s)}  " + ("\n" if tally.seeds == seeds else ""))
        sys.stderr.flush()

    return show


def _tell(tally: Tally, options: str) -> None:
    from rich.table import Table

    from tidewheel.testing.simulation.faults import KINDS

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("fault")
    table.add_column("times", justify="right")
    table.add_column("what it is")
    for kind, times in sorted(tally.faults.items()):
        name, _, point = kind.partition(":")
        table.add_row(kind, f"{times:,}", KINDS[name] + (f" ({point})" if point else ""))
    if tally.faults:
        console().print(table)
        write()
    for finding in tally.findings[:_SHOWN]:
        console().print(f"[red]seed {finding.seed}, step {finding.step}:[/] {plain(finding.what)}")
        write(f"  {_replay(finding, options)}")
    played = took(tally.virtual_ms / 1000)
    figures = f"{tally.steps:,} steps, {tally.events:,} events, {tally.runs:,} runs, {played}"
    found = len(tally.findings)
    result = f"{found} violation{'' if found == 1 else 's'}" if found else "nothing lost, nothing doubled"
    seeds = f"{tally.seeds:,} seed{'' if tally.seeds == 1 else 's'}"
    write(f"{seeds}, {figures} of virtual time in {took(tally.wall_s)}: {result}")
