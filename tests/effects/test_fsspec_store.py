"""The store on each kind of file system: the same answers, no lost race, and a refusal where it cannot be had."""

from __future__ import annotations

import multiprocessing
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidewheel.effects import CannotFence, FsspecStore, Stored

Open = Callable[[], FsspecStore]


@pytest.fixture(params=["file", "memory", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same, at first empty, store again and again."""
    name = secrets.token_hex(4)
    match request.param:
        case "file":
            return lambda: FsspecStore(str(tmp_path / name))
        case "memory":
            return lambda: FsspecStore(f"memory://{name}")
        case _:
            server = request.getfixturevalue("s3")
            return lambda: FsspecStore(f"s3://effects/{name}", **server)


def test_a_value_is_replaced_only_by_who_has_seen_it(opened: Open) -> None:
    one, other = opened(), opened()
    assert one.get("a/b") is None
    assert one.put_if("a/b", b"first", None)
    assert other.get("a/b") == Stored(b"first", "1")
    assert not other.put_if("a/b", b"blind", None)
    assert other.put_if("a/b", b"second", "1")
    assert not one.put_if("a/b", b"late", "1")
    assert one.get("a/b") == Stored(b"second", "2")
    assert one.get("a") is None


@pytest.mark.parametrize("opened", ["file", "memory"], indirect=True)
def test_who_races_loses_nothing(opened: Open) -> None:
    def count(store: FsspecStore) -> None:
        for _ in range(20):
            while True:
                found = store.get("count")
                seen = int(found.data) if found else 0
                if store.put_if("count", str(seen + 1).encode(), found and found.version):
                    break

    threads = [threading.Thread(target=count, args=(opened(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert opened().get("count") == Stored(b"60", "60")


def increment(directory: str, times: int) -> None:
    """What each process of the next test does."""
    store = FsspecStore(directory)
    for _ in range(times):
        while True:
            found = store.get("count")
            seen = int(found.data) if found else 0
            if store.put_if("count", str(seen + 1).encode(), found and found.version):
                break


def test_processes_that_race_on_a_disk_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=increment, args=(str(tmp_path), 20)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert FsspecStore(str(tmp_path)).get("count") == Stored(b"40", "40")


def test_what_a_killed_writer_left_is_no_value(tmp_path: Path) -> None:
    store = FsspecStore(str(tmp_path))
    assert store.put_if("k", b"whole", None)
    (tmp_path / "k" / ".draft-x").write_bytes(b"ha")
    assert store.get("k") == Stored(b"whole", "1")
    assert store.put_if("k", b"next", "1")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "simplecache::memory://x", "zip://x::memory://y.zip"])
def test_what_cannot_create_atomically_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if url.startswith("zip"):
        import io
        import zipfile

        from fsspec.implementations.memory import MemoryFileSystem

        monkeypatch.setattr(MemoryFileSystem, "store", {})  # one for the whole process
        empty = io.BytesIO()
        zipfile.ZipFile(empty, "w").close()
        MemoryFileSystem().pipe_file("/y.zip", empty.getvalue())
    with pytest.raises(CannotFence, match="no atomic way to create a file only if it is not there"):
        FsspecStore(url)


def test_a_server_that_ignores_the_condition_is_found_out(s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store = FsspecStore(f"s3://effects/{secrets.token_hex(4)}", **s3)
    honest = store._filesystem.pipe_file

    def deaf(path: str, data: bytes, mode: str) -> object:
        return honest(path, data)

    monkeypatch.setattr(store._filesystem, "pipe_file", deaf)
    with pytest.raises(CannotFence, match="overwritten although it was only to be created, by If-None-Match"):
        store.put_if("k", b"v", None)
    assert store.get("k") is None
