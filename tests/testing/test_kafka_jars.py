"""A new machine's first tests start several brokers at once: Kafka is fetched once, and is never half there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel.testing.kafka_jars import KAFKA_VERSION, BrokerUnavailable, resolve_jars

ROOT = Path(__file__).parents[2]
#: Is given `-DoutputDirectory=…`, writes a jar in two parts, and refuses to run beside another.
SLOW_MAVEN = """#!/bin/sh
for word; do case $word in -DoutputDirectory=*) out=${word#*=};; esac; done
mkdir "$FETCHES/running" || exit 1
printf half >"$out/kafka.jar"; sleep 0.5; printf whole >"$out/kafka.jar"
rmdir "$FETCHES/running"; echo fetched >>"$FETCHES/done"
"""
FAILING_MAVEN = "#!/bin/sh\necho '[INFO] looking'; echo '[ERROR] no such host'; exit 1\n"
RESOLVE = "from tidewheel.testing.kafka_jars import resolve_jars; print((resolve_jars() / 'kafka.jar').read_text())"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, whose Maven is a script in it."""
    monkeypatch.setenv("TIDEWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FETCHES", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def _install(machine: Path, maven: str) -> None:
    (machine / "mvn").write_text(maven)
    (machine / "mvn").chmod(0o755)


def test_of_several_that_need_it_one_fetches_and_the_others_wait(machine: Path) -> None:
    _install(machine, SLOW_MAVEN)
    asked = [
        subprocess.Popen([sys.executable, "-c", RESOLVE], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in asked] == ["whole"] * 3
    assert (machine / "done").read_text() == "fetched\n"


def test_one_that_was_cut_off_is_fetched_anew(machine: Path) -> None:
    _install(machine, SLOW_MAVEN)
    left = machine / "cache" / f"kafka-{KAFKA_VERSION}"
    left.mkdir(parents=True)
    (left / "broken.jar").write_text("half")
    assert sorted(path.name for path in resolve_jars().glob("*.jar")) == ["kafka.jar"]


def test_what_maven_says_is_told_and_nothing_is_left_behind(machine: Path) -> None:
    _install(machine, FAILING_MAVEN)
    with pytest.raises(BrokerUnavailable, match=r"could not fetch Kafka [\d.]+:\n\[ERROR\] no such host$"):
        resolve_jars()
    assert [path.name for path in (machine / "cache").iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]
