"""``tidewheel simulate`` as a shell and a program see it."""

from __future__ import annotations

import json
import subprocess
import sys


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "tidewheel_services.cli", "simulate", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_was_played_is_told_as_json() -> None:
    done = simulate("--faults", "--seeds", "5-6", "--steps", "300", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["seeds"], told["steps"], told["violations"]) == (2, 600, [])
    assert told["virtual_s"] > 60
    assert told["wall_s"] > 0
    assert sum(told["faults"].values()) > 20


def test_a_violation_names_its_seed_its_step_and_how_to_play_it_again() -> None:
    done = simulate("--faults", "--seeds", "3", "--plant", "no_grace", "--json")
    assert done.returncode == 1, done.stderr
    violation = json.loads(done.stdout)["violations"][0]
    again = simulate(*violation["replay"].split()[2:], "--json")
    assert again.returncode == 1
    found = json.loads(again.stdout)["violations"][0]
    assert found == violation
    assert "expired" in found["what"]
    assert 0 < found["step"] <= 2_000


def test_people_see_a_table_and_a_sentence() -> None:
    done = simulate("--faults", "--seeds", "2", "--steps", "300")
    assert done.returncode == 0, done.stderr
    assert "report_lost" in done.stdout
    assert "nothing lost, nothing doubled" in done.stdout.splitlines()[-1]


def test_wrong_options_are_named() -> None:
    for arguments, word in (
        (("--seeds", "9-3"), "no seed"),
        (("--seeds", "x"), "1200-1299"),
        (("--plant", "x"), "--plants"),
    ):
        done = simulate(*arguments)
        assert done.returncode == 2
        assert word in done.stderr
