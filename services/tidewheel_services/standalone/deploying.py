"""Keeps the DAGs of a directory deployed as its files change.

A file is looked at once it lies still (``settling``): half of one may be a workflow too. One that stops parsing leaves
its last good version live, and the mistakes are shown. Of two files with one id the
one that was there first keeps it. A file that is gone takes its DAG along; which DAGs came from here is remembered
across restarts, so that those deployed by other means are left alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from tidewheel.authoring.files import Source, is_python, load_source, names_dags
from tidewheel.authoring.imports import check_imports
from tidewheel.definition.links import check_links
from tidewheel.definition.load import Loaded, Mistake
from tidewheel_services.cli.client import Client, Refused
from tidewheel_services.cli.faults import CliError
from tidewheel_services.cli.options import files_below
from tidewheel_services.standalone.settling import GONE, Settling, Stamp, Stamps

#: Of a file's time; within a step of it two contents may have one stamp.
CLOCK_STEP_NS: Final = 20_000_000


class Told(msgspec.Struct, frozen=True):
    """What a look at the directory found worth telling."""

    deployed: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    faults: tuple[str, ...] = ()
    #: What may be wrong, and is deployed all the same.
    warnings: tuple[Mistake, ...] = ()
    #: YAML files that are not meant as workflows.
    passed: tuple[Path, ...] = ()
    #: There were mistakes at the last look, and are none now.
    mended: bool = False

    def __bool__(self) -> bool:
        return self != Told()


class Deployer:
    """Looks at ``directory`` and deploys through ``client``. ``memory`` is the file that says what came from here."""

    def __init__(self, directory: Path, client: Client, memory: Path, on_pools: Callable[[set[str]], None]) -> None:
        self._directory = directory
        self._client = client
        self._memory = memory
        self._on_pools = on_pools
        self._sources: dict[Path, tuple[Stamps, Source]] = {}
        #: DAG to the file that has its id, as far as deployed.
        self._owners = _remembered(memory)
        self._live: dict[str, str] = {}
        self._told: set[Mistake] = set()
        self._warned: set[Mistake] = set()
        self._told_faults: set[str] = set()
        self._passed: set[Path] = set()
        self._settled = False
        self._files = Settling()

    @property
    def dags(self) -> int:
        """How many DAGs of the directory are live."""
        return len(self._live)

    @property
    def waiting(self) -> bool:
        """Whether a file is being written: the next look should be soon."""
        return self._files.waiting

    def look(self) -> Told:
        """Bring what is deployed in line with the files."""
        if not self._read() and self._settled:
            return Told()
        good, mistakes = self._choose()
        deployed, faults = self._deploy(good)
        removed, more_faults = self._remove(good)
        faults += more_faults
        self._settled = not faults
        fresh = tuple(mistake for mistake in dict.fromkeys(mistakes) if mistake not in self._told)
        fresh_faults = tuple(fault for fault in faults if fault not in self._told_faults)
        mended = bool(self._told) and not mistakes
        self._told, self._told_faults = set(mistakes), set(faults)
        told = (tuple(deployed), tuple(removed), fresh, fresh_faults, self._warn(good), self._pass_over(), mended)
        return Told(*told)

    def _read(self) -> bool:
        """Load the files that have changed; whether any has, came or went."""
        present = files_below(self._directory)
        moved: dict[Path, Stamps] = dict.fromkeys(self._sources.keys() - present, (GONE,))
        for path in present:
            known = self._sources.get(path)
            stamps = _stamps((path,) if known is None else known[1].files)
            if known is None or known[0] != stamps:
                moved[path] = stamps
        settled = self._files.settled(moved, time.time_ns())
        gone = settled - set(present)
        for path in gone:
            del self._sources[path]
        changed = [path for path in present if path in settled]
        if changed:
            # What did not work may have wanted for what came since: a module that was not there.
            changed += [path for path, (_, source) in self._sources.items() if is_python(path) and _is_bad(source)]
        for path in dict.fromkeys(changed):
            began_ns = time.time_ns()
            source = self._load(path)
            self._sources[path] = (_stamps(source.files, began_ns), source)
        return bool(changed or gone)

    def _load(self, path: Path) -> Source:
        # What was a workflow is one with mistakes until its file is gone: half of one may have none of its keys.
        if is_python(path) or self._name(path) in self._owners.values() or names_dags(path):
            return load_source(path, self._directory)
        return Source(dags=(), files=(path,))

    def _pass_over(self) -> tuple[Path, ...]:
        """The files that are passed over, each told once."""
        found = {path for path, (_, source) in self._sources.items() if not source.dags and not is_python(path)}
        fresh = tuple(sorted(found - self._passed))
        self._passed = found
        return fresh

    def _choose(self) -> tuple[dict[str, tuple[Path, Loaded]], list[Mistake]]:
        good: dict[str, tuple[Path, Loaded]] = {}
        mistakes: list[Mistake] = []
        owned = set(self._owners.values())
        in_order = sorted(self._sources.items(), key=lambda item: (self._name(item[0]) not in owned, item[0]))
        for path, loaded in ((path, one) for path, (_, source) in in_order for one in source.dags):
            mistakes.extend(loaded.mistakes)
            if loaded.workflow is None:
                continue
            first, chosen = good.setdefault(loaded.workflow.id, (path, loaded))
            if chosen is not loaded:
                message = (
                    f"DAG '{loaded.workflow.id}' is defined in {first} already; give this one another id, "
                    "or remove one of the two files"
                )
                mistakes.append(Mistake(loaded.file, loaded.line, 1, "duplicate_dag", message))
        return good, mistakes

    def _deploy(self, good: dict[str, tuple[Path, Loaded]]) -> tuple[list[tuple[str, str]], list[str]]:
        workflows = [loaded.workflow for _, loaded in good.values() if loaded.workflow is not None]
        self._on_pools({task.pool for workflow in workflows for task in workflow.tasks})
        deployed: list[tuple[str, str]] = []
        faults: list[str] = []
        for dag, (path, loaded) in good.items():
            version = loaded.version or ""
            if self._live.get(dag) == version and self._owners.get(dag) == self._name(path):
                continue
            try:
                answer = self._client.post("dags", body={"definition": loaded.source, "source": self._name(path)})
            except CliError as error:
                faults.append(f"{path}: {error}")
                continue
            self._live[dag] = version
            self._remember(dag, self._name(path))
            if answer["created"]:
                deployed.append((dag, version))
        return deployed, faults

    def _remove(self, good: dict[str, tuple[Path, Loaded]]) -> tuple[list[str], list[str]]:
        removed: list[str] = []
        faults: list[str] = []
        for dag, name in list(self._owners.items()):
            path = self._directory / name
            stamps, held = self._sources.get(path, ((), None))
            # A file that is perhaps only half written takes nothing along; the next look knows.
            half_written = held is not None and (stamps[0] is None or _is_bad(held))
            if dag in good or half_written or self._files.is_waiting(path):
                continue
            try:
                self._client.delete("dags", dag, reason=f"{name} does not define it any more")
            except Refused as error:
                if error.kind != "not_found":
                    faults.append(f"{dag}: {error}")
                    continue
            except CliError as error:
                faults.append(f"{dag}: {error}")
                continue
            self._live.pop(dag, None)
            self._remember(dag, None)
            removed.append(dag)
        return removed, faults

    def _warn(self, good: dict[str, tuple[Path, Loaded]]) -> tuple[Mistake, ...]:
        loaded = [one for _, one in good.values()]
        found = dict.fromkeys(check_links(loaded) + check_imports(loaded, self._directory))
        fresh = tuple(warning for warning in found if warning not in self._warned)
        self._warned = set(found)
        return fresh

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._directory))

    def _remember(self, dag: str, name: str | None) -> None:
        if self._owners.get(dag) == name:
            return
        if name is None:
            del self._owners[dag]
        else:
            self._owners[dag] = name
        beside = self._memory.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(self._owners))
        beside.replace(self._memory)


def _is_bad(source: Source) -> bool:
    return any(one.workflow is None for one in source.dags)


def _stamps(paths: Iterable[Path], read_ns: int | None = None) -> Stamps:
    """Of each file. One that was written since, or just before it was read, has none: it is better read again."""
    stamps: list[Stamp] = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            stamps.append(GONE)
            continue
        unsure = read_ns is not None and found.st_mtime_ns > read_ns - CLOCK_STEP_NS
        stamps.append(None if unsure else (found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)


def _remembered(memory: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, str])
    return {}
