"""Kafka's own jars, fetched once by Maven into the user's cache: a real broker where no Docker engine answers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.4.0"
_JAVA_MIN = 17
#: A first fetch of 43 MB; generous for a slow line.
_FETCH_S_MAX = 600
#: Of Maven's complaints the first lines say what is wrong; the last ones are where to read on.
_SAID_LINES = 5

#: The SLF4J binding is that of SLF4J 1.7, which Kafka 4 is built against.
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidewheel</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""

_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

INSTALL_HINT = (
    f"install Java {_JAVA_MIN} and Maven (Debian/Ubuntu: `apt install openjdk-17-jre-headless maven`, "
    "macOS: `brew install openjdk maven`), or start Docker, or set TIDEWHEEL_TEST_KAFKA to a broker's host:port"
)


class BrokerUnavailable(RuntimeError):
    """No broker can be started here; the message says what to install."""


def find_java() -> str:
    """The ``java`` to run, of a version that Kafka can work with."""
    home = os.environ.get("JAVA_HOME")
    candidate = Path(home, "bin", "java") if home else None
    java = str(candidate) if candidate is not None and candidate.exists() else shutil.which("java")
    if java is None:
        raise BrokerUnavailable(f"no Java found: {INSTALL_HINT}")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = shown.split('"')[1] if '"' in shown else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < _JAVA_MIN:
        raise BrokerUnavailable(f"{java} is version {version or 'unknown'}, Kafka needs {_JAVA_MIN}: {INSTALL_HINT}")
    return java


def resolve_jars() -> Path:
    """The directory of Kafka's jars and logging configuration, fetched if they are not there yet.

    It is there whole or not at all, and one process fetches while others wait: a broker whose jars are written anew
    beneath it dies.
    """
    home = _cache_directory() / f"kafka-{KAFKA_VERSION}"
    if (home / "complete").exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetching-") as scratch:
                fetched = Path(scratch, "kafka")
                fetched.mkdir()
                _fetch(fetched)
                shutil.rmtree(home, ignore_errors=True)  # of a fetch that was cut off
                fetched.rename(home)
    return home


def _fetch(home: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerUnavailable(f"no Maven found to fetch Kafka {KAFKA_VERSION}: {INSTALL_HINT}")
    (home / "pom.xml").write_text(_POM)
    (home / "log4j2.properties").write_text(_LOGGING)
    arguments = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={home}"]
    try:
        fetched = subprocess.run(
            [maven, *arguments], cwd=home, capture_output=True, text=True, timeout=_FETCH_S_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerUnavailable(f"Maven took over {_FETCH_S_MAX} s to fetch Kafka {KAFKA_VERSION}") from error
    if fetched.returncode != 0:
        said = [line for line in (fetched.stdout + fetched.stderr).splitlines() if "ERROR" in line]
        raise BrokerUnavailable("\n".join([f"Maven could not fetch Kafka {KAFKA_VERSION}:", *said[:_SAID_LINES]]))
    (home / "complete").touch()


def _cache_directory() -> Path:
    if chosen := os.environ.get("TIDEWHEEL_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tidewheel"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidewheel"
