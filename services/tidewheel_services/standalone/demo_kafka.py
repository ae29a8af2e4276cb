"""The demo on a real Kafka: a process for each service, and a run asked for three times by a plain Kafka producer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tidewheel_services.cli.client import Client
from tidewheel_services.cli.faults import CliError
from tidewheel_services.cli.output import write
from tidewheel_services.cli.runs import wait_for
from tidewheel_services.config import Settings
from tidewheel_services.embedded_postgres import EmbeddedPostgres, PostgresUnavailable
from tidewheel_services.postgres_placement import remove_placed
from tidewheel_services.standalone.demo_dag import DAG, RUN_S_MAX, DemoFailed, definition, show_result, verified
from tidewheel_services.standalone.engine import CannotRun

ASKED = 3
UP_S_MAX = 40.0
STOP_S_MAX = 15.0


def demo_on_kafka(project: Path, directory: Path, results: Path) -> None:
    """Run it. Raises ``DemoFailed`` or ``CannotRun``."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_kafka())
        # An earlier demo's read model followed another broker.
        remove_placed(directory / "postgres")
        try:
            postgres = stack.enter_context(EmbeddedPostgres(directory / "postgres", throwaway=True))
        except PostgresUnavailable as error:
            raise CannotRun(str(error)) from error
        port = _free_port()
        settings = Settings(log=log, postgres=postgres.dsn, api=f"http://127.0.0.1:{port}")
        _create_topics(log)
        output = directory / "processes"
        output.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "TIDEWHEEL_LOG": settings.log,
            "TIDEWHEEL_POSTGRES": settings.postgres,
            "TIDEWHEEL_TOKEN": "",
            "TIDEWHEEL_INSTANCE": "",
        }
        processes = {
            "scheduler": ["scheduler"],
            "worker": ["worker", "--pool", "default=8", "--project", str(project)],
            "projector": ["projector"],
            "api": ["api", "--port", str(port)],
        }
        running = {
            name: stack.enter_context(_process(name, arguments, environment, output))
            for name, arguments in processes.items()
        }
        write(f"processes up: {', '.join(processes)}; log {log}, API {settings.api}; what they say is in {output}")
        try:
            _run(settings, project, results)
        except (CliError, DemoFailed) as error:
            ended = [name for name, process in running.items() if process.poll() is not None]
            if not ended:
                raise
            what = f"{', '.join(ended)} ended by itself (see {output}): {error}"
            raise DemoFailed(what) from error


def _run(settings: Settings, project: Path, results: Path) -> None:
    run_id = f"kafka-{time.time_ns() // 1_000_000}"
    with Client(settings) as client:
        _wait_until_ready(client)
        answer = client.post("dags", body={"definition": definition(project), "source": f"{DAG}.yaml"})
        before = len(list(client.pages("dags", DAG, "runs", limit=10_000, position=answer["position"])))
        request = {"dag": DAG, "run_id": run_id, "inputs": {"year": 2015, "directory": str(results)}}
        topic = publish(settings.log, request, ASKED)
        write(f"published {ASKED} times to {topic}: {json.dumps(request)}")
        _wait_until_created(client, run_id)
        wait_for(client, DAG, run_id, "", RUN_S_MAX)
        show_result(client, run_id, "wet")
        runs = list(client.pages("dags", DAG, "runs", limit=10_000))
        if len(runs) != before + 1:
            raise DemoFailed(f"{ASKED} records with one run_id made {len(runs) - before} runs instead of 1")
        write(f"{ASKED} records, 1 run")
    write(verified(settings.log))


def publish(log_url: str, request: Mapping[str, object], times: int) -> str:
    """Send the record with a plain Kafka producer and its default partitioner, as any other program would."""
    from confluent_kafka import Producer

    url = urlsplit(log_url)
    topic = parse_qs(url.query).get("prefix", ["tidewheel."])[0] + "triggers"
    producer = Producer({"bootstrap.servers": url.netloc})
    for _ in range(times):
        producer.produce(topic, key=str(request["dag"]), value=json.dumps(request))
    if producer.flush(10):
        raise DemoFailed(f"the records for {topic} could not be delivered to {url.netloc}")
    return topic


@contextlib.contextmanager
def _kafka() -> Iterator[str]:
    """The log's URL: the environment's, or a broker of our own."""
    given = os.environ.get("TIDEWHEEL_LOG", "")
    if given:
        if not given.startswith("kafka://"):
            raise CannotRun(f"TIDEWHEEL_LOG is {given}; for this demo it must be a kafka:// URL, or unset")
        yield given
        return
    from tidewheel.testing.kafka_broker import open_broker
    from tidewheel.testing.kafka_jars import BrokerUnavailable

    write("starting a Kafka broker")
    try:
        with open_broker() as address:
            yield f"kafka://{address}"
    except BrokerUnavailable as error:
        raise CannotRun(str(error)) from error


@contextlib.contextmanager
def _process(
    name: str, arguments: list[str], environment: Mapping[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Tidewheel, ended in order at the end; its output goes to a file."""
    with (output / f"{name}.log").open("wb") as file:
        command = [sys.executable, "-m", "tidewheel_services.cli", *arguments]
        process = subprocess.Popen(command, env=dict(environment), stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _create_topics(log_url: str) -> None:
    from tidewheel.log.interface import LogError
    from tidewheel.log.opening import open_log

    try:
        log = open_log(log_url)
        try:
            log.create_topics()
        finally:
            log.close()
    except LogError as error:
        raise CannotRun(str(error)) from error


def _wait_until_ready(client: Client) -> None:
    deadline = time.monotonic() + UP_S_MAX
    while True:
        try:
            client.get("ready")
        except CliError as error:
            if time.monotonic() > deadline:
                raise CannotRun(f"the API is not ready after {UP_S_MAX:g} s: {error}") from error
            time.sleep(0.1)
        else:
            return


def _wait_until_created(client: Client, run_id: str) -> None:
    deadline = time.monotonic() + UP_S_MAX
    while True:
        try:
            client.get("dags", DAG, "runs", run_id)
        except CliError as error:
            if time.monotonic() > deadline:
                raise DemoFailed(f"no run came of the records within {UP_S_MAX:g} s: {error}") from error
            time.sleep(0.1)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
