"""Keeps the DAGs of a directory deployed as its files change.

A file that stops parsing leaves its last good version live, and the mistakes are shown. Of two files with one id the
one that was there first keeps it. A file that is gone takes its DAG along; which DAGs came from here is remembered
across restarts, so that those deployed by other means are left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from tidewheel.definition.load import Loaded, Mistake, load_files
from tidewheel_services.cli.client import Client, Refused
from tidewheel_services.cli.faults import CliError
from tidewheel_services.cli.options import files_below

Stamp = tuple[int, int, int]


class Told(msgspec.Struct, frozen=True):
    """What a look at the directory found worth telling."""

    deployed: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    faults: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deployed or self.removed or self.mistakes or self.faults)


class Deployer:
    """Looks at ``directory`` and deploys through ``client``. ``memory`` is the file that says what came from here."""

    def __init__(self, directory: Path, client: Client, memory: Path, on_pools: Callable[[set[str]], None]) -> None:
        self._directory = directory
        self._client = client
        self._memory = memory
        self._on_pools = on_pools
        self._loaded: dict[Path, tuple[Stamp, Loaded]] = {}
        #: DAG to the file that has its id, as far as deployed.
        self._owners = _remembered(memory)
        self._live: dict[str, str] = {}
        self._told: set[Mistake] = set()
        self._told_faults: set[str] = set()
        self._settled = False

    @property
    def dags(self) -> int:
        """How many DAGs of the directory are live."""
        return len(self._live)

    def look(self) -> Told:
        """Bring what is deployed in line with the files."""
        if not self._read() and self._settled:
            return Told()
        good, mistakes = self._choose()
        deployed, faults = self._deploy(good)
        removed, more_faults = self._remove(good)
        faults += more_faults
        self._settled = not faults
        fresh = tuple(mistake for mistake in mistakes if mistake not in self._told)
        fresh_faults = tuple(fault for fault in faults if fault not in self._told_faults)
        self._told, self._told_faults = set(mistakes), set(faults)
        return Told(tuple(deployed), tuple(removed), fresh, fresh_faults)

    def _read(self) -> bool:
        """Load the files that have changed; whether any has, came or went."""
        changed = False
        present = set()
        for path in files_below(self._directory):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            present.add(path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if path not in self._loaded or self._loaded[path][0] != stamp:
                self._loaded[path] = (stamp, load_files([path])[0])
                changed = True
        for path in self._loaded.keys() - present:
            del self._loaded[path]
            changed = True
        return changed

    def _choose(self) -> tuple[dict[str, tuple[Path, Loaded]], list[Mistake]]:
        good: dict[str, tuple[Path, Loaded]] = {}
        mistakes: list[Mistake] = []
        owned = set(self._owners.values())
        for path in sorted(self._loaded, key=lambda path: (self._name(path) not in owned, path)):
            loaded = self._loaded[path][1]
            mistakes.extend(loaded.mistakes)
            if loaded.workflow is None:
                continue
            first, _ = good.setdefault(loaded.workflow.id, (path, loaded))
            if first != path:
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
                body = {"definition": path.read_text(encoding="utf-8"), "source": self._name(path)}
                answer = self._client.post("dags", body=body)
            except (CliError, OSError, UnicodeDecodeError) as error:
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
            held = self._loaded.get(self._directory / name)
            if dag in good or (held is not None and held[1].workflow is None):
                continue
            try:
                self._client.delete("dags", dag, reason=f"{name} is gone")
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


def _remembered(memory: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, str])
    return {}
