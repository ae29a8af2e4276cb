"""Where an embedded Postgres lies that root starts, while others are placed too."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tidewheel_services import postgres_placement
from tidewheel_services.postgres_placement import Account, placed


def test_what_takes_the_place_of_leavings_is_not_swept_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_placement, "BASE", tmp_path / "base")
    # As if the server's user could not pass through the directories of root.
    monkeypatch.setattr(postgres_placement, "_reachable", lambda *_: False)
    account = Account(os.getuid(), os.getgid(), ())
    directory, other = tmp_path / "flows" / "postgres", tmp_path / "others" / "postgres"
    data = placed(directory, account, lambda _: None)
    # As `rm -r flows` leaves it.
    directory.unlink()
    again = threading.Thread(target=placed, args=(directory, account, lambda _: None))

    def meanwhile(leavings: Path) -> None:
        if leavings == data:
            again.start()
            again.join(0.5)

    placed(other, account, meanwhile)
    again.join(30)
    assert directory.resolve() == data and data.is_dir()
