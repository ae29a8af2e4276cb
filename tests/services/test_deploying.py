"""Files of a directory that change while `tidewheel dev` looks: nothing half written is deployed, nothing is removed
that is only being replaced.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidewheel_services.standalone import deploying
from tidewheel_services.standalone.deploying import Deployer
from tidewheel_services.standalone.settling import SETTLE_NS, Settling

NOW = 1_700_000_000_000_000_000
WHOLE = "id: nightly\ntasks:\n  - {id: load, run: 'true'}\n  - {id: check, needs: [load], run: 'true'}\n"
HALF = WHOLE[: WHOLE.index("  - {id: check")]
FILE = Path("nightly.yaml")


def test_a_file_lies_still_by_its_own_time() -> None:
    old, fresh = (NOW - SETTLE_NS, 10, 1), (NOW - SETTLE_NS + 1, 10, 1)
    assert Settling().settled({FILE: (old,)}, NOW) == {FILE}
    settling = Settling()
    assert settling.settled({FILE: (old, fresh)}, NOW) == set() and settling.is_waiting(FILE)
    assert settling.settled({FILE: (old, fresh)}, NOW + 1) == {FILE} and not settling.waiting


def test_a_file_whose_time_is_not_to_be_believed_lies_still_once_it_has_looked_the_same_for_a_while() -> None:
    settling, ahead, later = Settling(), (NOW + 10**12, 10, 1), (NOW + 10**12, 20, 1)
    assert settling.settled({FILE: (ahead,)}, NOW) == set()
    assert settling.settled({FILE: (later,)}, NOW + SETTLE_NS) == set(), "it has grown meanwhile"
    assert settling.settled({FILE: (later,)}, NOW + 2 * SETTLE_NS) == {FILE}


def test_a_file_that_is_gone_is_given_the_time_to_come_back() -> None:
    settling = Settling()
    assert settling.settled({FILE: (deploying.GONE,)}, NOW) == set()
    assert settling.settled({}, NOW + SETTLE_NS) == set() and not settling.waiting, "it was there again"
    assert settling.settled({FILE: (deploying.GONE,)}, NOW + SETTLE_NS) == set()
    assert settling.settled({FILE: (deploying.GONE,)}, NOW + 2 * SETTLE_NS) == {FILE}


class Api:
    """Takes definitions and removals."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def post(self, *path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.said.append(("deploy", body["definition"]))
        return {"created": True}

    def delete(self, *path: str, **params: Any) -> None:
        self.said.append(("remove", path[1]))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [NOW]
    monkeypatch.setattr(deploying.time, "time_ns", lambda: now[0])
    return now


def write(path: Path, text: str, at: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(at, at))


def test_half_a_file_is_no_version_and_one_that_is_replaced_is_not_removed(tmp_path: Path, clock: list[int]) -> None:
    api: Any = Api()
    memory = tmp_path / "deployed.json"
    deployer = Deployer(tmp_path, api, memory, lambda pools: None)
    file = tmp_path / "nightly.yaml"
    write(file, HALF, NOW)
    assert not deployer.look() and deployer.waiting
    clock[0] += SETTLE_NS // 2
    write(file, WHOLE, clock[0])
    assert not deployer.look(), "what is there now has just come"
    clock[0] += SETTLE_NS
    assert [dag for dag, _ in deployer.look().deployed] == ["nightly"]
    assert api.said == [("deploy", WHOLE)] and not deployer.waiting

    file.unlink()
    assert not deployer.look() and deployer.waiting
    write(file, WHOLE, clock[0])
    clock[0] += SETTLE_NS
    assert not deployer.look() and api.said == [("deploy", WHOLE)]

    write(file, HALF + "  - {id: check, neds: [load], run: 'true'}\n", clock[0])
    clock[0] += SETTLE_NS
    (mistake,) = deployer.look().mistakes
    assert (mistake.file, mistake.line, mistake.code) == (str(file), 4, "unknown_key")
    assert api.said == [("deploy", WHOLE)], "the last good version stays"

    write(file, WHOLE, clock[0])
    again = Deployer(tmp_path, api, memory, lambda pools: None)
    assert not again.look() and api.said == [("deploy", WHOLE)], "its file is there, and was just saved"

    file.unlink()
    deployer.look()
    clock[0] += SETTLE_NS
    assert deployer.look().removed == ("nightly",) and api.said[-1] == ("remove", "nightly")


def test_yaml_of_other_tools_is_told_once_and_what_was_a_workflow_is_none_of_it(
    tmp_path: Path, clock: list[int]
) -> None:
    api: Any = Api()
    deployer = Deployer(tmp_path, api, tmp_path / "deployed.json", lambda pools: None)
    write(tmp_path / "docker-compose.yml", "services: {}\n", NOW - SETTLE_NS)
    write(tmp_path / "nightly.yaml", WHOLE, NOW - SETTLE_NS)
    told = deployer.look()
    assert (told.passed, told.mistakes) == ((tmp_path / "docker-compose.yml",), ())
    assert not deployer.look()

    write(tmp_path / "nightly.yaml", "# what is left of it\n", NOW)
    clock[0] += SETTLE_NS
    told = deployer.look()
    assert (told.passed, told.removed, [one.code for one in told.mistakes]) == ((), (), ["empty"])

    write(tmp_path / "docker-compose.yml", "id: other\ntasks: [{id: a, run: 'true'}]\n", clock[0])
    clock[0] += SETTLE_NS
    assert [dag for dag, _ in deployer.look().deployed] == ["other"]
