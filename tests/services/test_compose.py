"""The Compose file: it names commands that exist, opens no port to the network, and sets Kafka as the tests do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tidewheel.testing.kafka_broker import BROKER_SETTINGS
from tidewheel.testing.kafka_jars import KAFKA_VERSION

ROOT = Path(__file__).parents[2]
#: What Compose leaves at Kafka's own defaults: they make a test's broker small and quick.
ONLY_FOR_TESTS = ("num.partitions", "share.coordinator", "log.cleaner", "broker.")


def services() -> dict[str, Any]:
    """The services of the file, with its merge keys applied."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


def test_every_command_exists() -> None:
    commands = [service["command"] for service in services().values() if "command" in service]
    assert ["scheduler"] in commands
    for command in commands:
        shown = subprocess.run(
            [sys.executable, "-m", "tidewheel_services.cli", *command, "--help"], capture_output=True, check=False
        )
        assert shown.returncode == 0, command


def test_kafka_is_set_as_the_tests_broker() -> None:
    kafka = services()["kafka"]
    assert kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    for name, value in BROKER_SETTINGS.items():
        if not any(part in name for part in ONLY_FOR_TESTS):
            assert kafka["environment"]["KAFKA_" + name.replace(".", "_").upper()] == value, name


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_two_schedulers_share_the_shards() -> None:
    assert services()["scheduler"]["deploy"]["replicas"] == 2
    assert "partitions=32" in services()["scheduler"]["environment"]["TIDEWHEEL_LOG"]
