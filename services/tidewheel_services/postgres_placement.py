"""Whom the embedded Postgres runs as, and where its files lie so that this user can reach them.

Postgres refuses to run as root. Started by root, it runs as ``postgres`` or ``nobody``. Where that user cannot pass
through the directories above, nobody's directories are opened: binaries are copied and data placed under
``/var/lib/tidewheel``, and the wanted path becomes a link to the data.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BASE = Path("/var/lib/tidewheel")


class PostgresUnavailable(Exception):
    """The embedded Postgres cannot be used here. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """Whom a child process runs as; all None: as we do."""

    user: int | None = None
    group: int | None = None
    extra_groups: Sequence[int] | None = None

    def own(self, path: Path) -> None:
        """Make the path the account's."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)


def account_for(directory: Path) -> Account:
    """Whom the server on this directory runs as."""
    if os.geteuid() != 0:
        return Account()
    names = ["postgres", "nobody"]
    if directory.exists() and directory.stat().st_uid != 0:
        names.insert(0, directory.owner())
    for name in names:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return Account(found.pw_uid, found.pw_gid, ())
    raise PostgresUnavailable("Postgres does not run as root, and there is no user 'postgres' or 'nobody' to run it as")


def placed(directory: Path, account: Account, end_server: Callable[[Path], None]) -> Path:
    """The data directory, existing, private and within reach of the account."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    if account.user is None or (not directory.is_symlink() and _reachable(directory.parent, account)):
        directory.mkdir(mode=0o700, exist_ok=True)
        account.own(directory)
        return directory.resolve()
    if directory.is_symlink() and directory.exists():
        return directory.resolve()
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        _remove_empty(directory)
    with _alone():
        _sweep(end_server)
        name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        elsewhere = _base() / f"postgres-{name}"
        # The link comes first: data without a link are taken for the leavings of a directory that was deleted.
        directory.symlink_to(elsewhere)
        end_server(elsewhere)
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.mkdir(mode=0o700)
        account.own(elsewhere)
        _note(elsewhere).write_bytes(os.fsencode(directory))
    return elsewhere


def usable_binaries(binaries: Path, account: Account) -> Path:
    """The directory of the binaries, or of a copy that the account can reach."""
    if account.user is None or _reachable(binaries, account):
        return binaries
    source = binaries.parent
    mark = f"{source}:{(binaries / 'postgres').stat().st_mtime_ns}"
    copy = _base() / f"binaries-{hashlib.sha256(mark.encode()).hexdigest()[:16]}"
    if not copy.exists():
        making = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(source, making, symlinks=True)
        for path in making.rglob("*"):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o555 if mode & stat.S_IXUSR else 0o444))
        making.chmod(0o755)
        try:
            making.rename(copy)
        except OSError:
            # Another process was faster.
            shutil.rmtree(making)
    return copy / binaries.name


def _remove_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError as error:
        raise PostgresUnavailable(
            f"{directory} holds data, but lies in a directory that the user Postgres runs as may not pass through; "
            "let others pass (chmod o+x) on the directories above it, or use another place"
        ) from error


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process places or sweeps at a time: who saw leavings must not remove what has taken their place since."""
    with (_base() / "placing.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(end_server: Callable[[Path], None]) -> None:
    """Remove data whose link is gone, as the directory it stood in was deleted."""
    for note in _base().glob("postgres-*.path"):
        data = note.with_suffix("")
        with contextlib.suppress(OSError):
            link = Path(os.fsdecode(note.read_bytes()))
            if not (link.is_symlink() and link.readlink() == data):
                end_server(data)
                shutil.rmtree(data, ignore_errors=True)
                note.unlink()


def _note(data: Path) -> Path:
    return data.with_name(f"{data.name}.path")


def _base() -> Path:
    BASE.mkdir(mode=0o755, parents=True, exist_ok=True)
    BASE.chmod(0o755)
    return BASE


def _reachable(path: Path, account: Account) -> bool:
    """Whether the account may pass through ``path`` and everything above it."""
    path = path.resolve()
    for part in (path, *path.parents):
        found = part.stat()
        if found.st_uid == account.user:
            allowed = stat.S_IXUSR
        elif found.st_gid == account.group:
            allowed = stat.S_IXGRP
        else:
            allowed = stat.S_IXOTH
        if not found.st_mode & allowed:
            return False
    return True


def remove_placed(directory: Path) -> None:
    """Remove an embedded server's data, those that it keeps elsewhere included: they come again from the journal."""
    if directory.is_symlink():
        shutil.rmtree(directory.resolve(), ignore_errors=True)
        directory.unlink()
    shutil.rmtree(directory, ignore_errors=True)
