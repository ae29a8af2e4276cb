"""The comparison at the end: what was accepted, what the journal says, what tasks say they did, who was told what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tests.chaos.journal import JournalReader
from tests.chaos.landing import RunKey
from tests.chaos.ledger import Effect
from tests.chaos.load import TOLD, Load, shape_of, tasks_of
from tidewheel.core.events import TaskSucceeded

_SHOWN = 10
#: How a notification begins.
_OF_RUN = re.compile("Run (?P<run>[^ ]+) of (?P<dag>[^ ,]+),")


class Verdict(msgspec.Struct, kw_only=True):
    """Each list must be empty; it says what is wrong, in words."""

    #: Accepted and no run; a run that did not end; a task of an ended run without a result; a success without effect.
    lost: list[str]
    #: More than one run for one request, result for one task, or result for one attempt.
    doubled: list[str]
    ledger_without_lease: list[str]
    #: Runs by records that no record on the topic asks for; notifications of what did not happen.
    invented: list[str]
    #: Runs that ended and of which nobody was told.
    untold: list[str]
    violations: list[str]
    #: Runs by the user's own records, and notifications that came more than once: a notifier died. Allowed.
    landed: int
    told_again: int
    #: Effects of one attempt that began more than once: its worker died and came back under its name. Allowed.
    repeated_effects: int
    runs: int
    tasks: int
    attempts: int
    accepted: int

    def faults(self) -> list[str]:
        """All that is wrong, the first of each kind."""
        return [
            f"{name}: {line}"
            for name in ("lost", "doubled", "ledger_without_lease", "invented", "untold", "violations")
            for line in getattr(self, name)[:_SHOWN]
        ]


def judge(
    journal: JournalReader,
    load: Load,
    wanted: Mapping[RunKey, set[str]],
    told: list[str],
    effects: list[Effect],
    violations: list[str],
) -> Verdict:
    """Compare everything; nothing is under way any more.

    ``wanted`` are the runs that the user's own records are to start, with the places of the records; ``told`` are the
    notifications that arrived.
    """
    causes = Counter(cause for found in journal.created.values() for cause in found)
    lost = [f"accepted, but there is no run {dag} {run}" for dag, run in load.named - journal.created.keys()]
    lost += [
        f"acknowledged, but triggers/{partition}/{offset} made no run"
        for partition, offset in load.places
        if not causes[f"triggers/{partition}/{offset}"]
    ]
    lost += [f"{dag} {run} has not ended" for dag, run in journal.created.keys() - journal.ended.keys()]
    lost += [
        f"{dag} {run} ended and {task} has no result"
        for dag, run in journal.ended
        for task in tasks_of(dag)
        if not journal.final[dag, run, task]
    ]
    lost += [f"{places} made no run {' '.join(run)}" for run, places in wanted.items() if run not in journal.created]
    lost += _without_effect(journal, effects)
    doubled = [
        f"{dag} {run} was created {len(c)} times: {c}" for (dag, run), c in journal.created.items() if len(c) > 1
    ]
    doubled += [f"{cause} made {count} runs" for cause, count in causes.items() if count > 1 and cause != "timer"]
    doubled += [f"{dag} {run} ended {ends}" for (dag, run), ends in journal.ended.items() if len(ends) > 1]
    doubled += [f"{' '.join(task)} has results {found}" for task, found in journal.final.items() if len(found) > 1]
    doubled += [f"{attempt} has results {found}" for attempt, found in journal.results.items() if len(found) > 1]
    starts = Counter(effect.key for effect in effects if effect.what == "start")
    return Verdict(
        lost=sorted(lost),
        doubled=sorted(doubled),
        ledger_without_lease=_without_lease(journal, effects),
        invented=[
            f"{' '.join(run)} says that it answers {origin}"
            for run, origin in journal.origins.items()
            if origin not in wanted.get(run, ())
        ]
        + [f"told of {' '.join(run)}, which has not succeeded" for run in runs_of(told) - to_be_told(journal)],
        untold=[f"nobody was told that {' '.join(run)} has succeeded" for run in to_be_told(journal) - runs_of(told)],
        violations=violations,
        landed=len(wanted),
        told_again=len(told) - len(runs_of(told)),
        repeated_effects=sum(count > 1 for count in starts.values()),
        runs=len(journal.created),
        tasks=len(journal.final),
        attempts=len(journal.leases),
        accepted=len(load.named) + len(load.places),
    )


def to_be_told(journal: JournalReader) -> set[RunKey]:
    """The runs that have succeeded and of which the notifier tells."""
    return {run for run in journal.succeeded_runs() if shape_of(run[0]) in TOLD}


def runs_of(told: Iterable[str]) -> set[RunKey]:
    """Those that the notifications are about."""
    found = (_OF_RUN.match(message) for message in told)
    return {(one["dag"], one["run"]) for one in found if one is not None}


def _without_lease(journal: JournalReader, effects: list[Effect]) -> list[str]:
    """Lines of the ledger by somebody who had no right to run that attempt."""
    nobody = ("nobody", 0)
    return [str(effect) for effect in effects if journal.leases.get(effect.key, nobody)[0] != effect.worker]


def _without_effect(journal: JournalReader, effects: list[Effect]) -> list[str]:
    """Attempts recorded as successes that never said they came to their end. What waits has nothing to say."""
    ended = {effect.key for effect in effects if effect.what == "end"}
    succeeded = {attempt for attempt, found in journal.results.items() if TaskSucceeded.__name__ in found}
    worked = succeeded & journal.leases.keys()
    return [f"{attempt} is recorded as a success and did nothing" for attempt in worked - ended]
