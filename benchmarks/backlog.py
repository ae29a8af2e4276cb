"""Memory under a backlog: a million triggers before the scheduler starts, a million events before the projector does.

``python -m benchmarks.backlog`` (or ``make backlog``) prints the figures and writes ``build/backlog.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import psycopg
from rich.console import Console

from benchmarks import processes
from benchmarks.workloads import Driver, fan
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.workflow import Concurrency, Input
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import COMMANDS, EVENTS, POOL_EVENTS, TRIGGERS, Append, Log
from tidewheel.log.opening import open_log
from tidewheel.log.partition import partition_of
from tidewheel.runtime.backlog import read_note
from tidewheel.runtime.scheduler import wall_clock_ms
from tidewheel.testing.kafka_broker import open_broker
from tidewheel.testing.world import Outcome, World
from tidewheel.wire.codec import GENESIS, decode_event, encode, encode_event
from tidewheel_services.embedded_postgres import EmbeddedPostgres
from tidewheel_services.process_log import log_to_stderr

REPORT = Path("build/backlog.json")
#: A few floods among many DAGs is what is met; that every DAG floods is the worst of it.
DAGS = 20
PARTITIONS = 8

console = Console(stderr=True)
Figures = dict[str, float]


def flood_of_triggers(
    log: Log, environment: dict[str, str], directory: Path, records: int, *, input_bytes: int = 0
) -> Figures:
    """Publish the triggers, start a scheduler, and see what it costs until none stands before a new one."""
    text = Input(type="string", default="", required=False)
    dags = [
        msgspec.structs.replace(
            fan(f"flood_{number:02}", "nobody"), concurrency=Concurrency(max_runs=4), inputs={"text": text}
        )
        for number in range(DAGS)
    ]
    Driver(log).deploy([*dags, fan("calm", "nobody")])
    inputs = {"text": "x" * input_bytes}
    begun = time.monotonic()
    Driver(log).trigger(((dags[n % DAGS].id, f"r{n:07}") for n in range(records)), inputs=inputs)
    published = time.monotonic() - begun
    with running("scheduler", environment, directory) as scheduler:
        processes.wait_for(scheduler, "scheduler is up")
        begun = time.monotonic()
        # Somebody else's commands and triggers, in the middle of it.
        command_s = _answered(log, POOL_EVENTS, "spare", _configure)
        trigger_s = _answered(log, EVENTS, "calm", _trigger_calm)
        _wait_until(lambda: _unread(log) == 0, 1_200)
        took = time.monotonic() - begun
        peak = scheduler.peak_mb()
        waiting = sum(
            extent.last - extent.first + 1
            for shard in range(log.partitions)
            for extent in read_note(log.noted(shard)).postponed.values()
        )
    return {
        "records": records,
        "dags": DAGS,
        "publish_s": round(published, 1),
        "passed_s": round(took, 1),
        "records_per_s": round(records / took),
        "command_meanwhile_s": round(command_s, 2),
        "trigger_meanwhile_s": round(trigger_s, 2),
        "extents_waiting": waiting,
        "scheduler_peak_mb": round(peak, 1),
    }


def flood_of_events(
    log: Log, dsn: str, environment: dict[str, str], directory: Path, records: int, *, output_bytes: int = 0
) -> Figures:
    """Write a journal, start a projector, and see what it costs until the last event is a row."""
    written = write_journal(log, records, output_bytes)
    with running("projector", environment, directory) as projector:
        begun = time.monotonic()
        _wait_until(lambda: _projected(dsn) >= written, 3_600)
        took = time.monotonic() - begun
        peak = projector.peak_mb()
    return {
        "records": written,
        "projected_s": round(took, 1),
        "records_per_s": round(written / took),
        "projector_peak_mb": round(peak, 1),
    }


def reading(environment: dict[str, str], directory: Path) -> Figures:
    """Start an API over what is there, and page through it."""
    with running("api", environment, directory, "--port", "0") as api:
        processes.wait_for(api, "api is up")
        url = api.log.read_text().split('"url": "')[1].split('"')[0]
        before = api.rss_mb()
        pages = _page_through(url)
        grown = api.rss_mb() - before
    return {"pages": pages, "growth_mb": round(grown, 1), "api_mb": round(before + grown, 1)}


def write_journal(log: Log, records: int, output_bytes: int) -> int:
    """At least so many events of ended runs, chained as owners chain them, over ``DAGS`` DAGs; gives how many."""
    deployed, run = _a_run(output_bytes)
    producer = log.producer()
    heads: dict[int, tuple[int, bytes]] = {}
    written = number = 0
    seqs: dict[str, int] = {}

    def write(event: e.AnyEvent, dag: str) -> None:
        shard = partition_of(dag.encode(), log.partitions)
        shard_seq, chain = heads.get(shard, (0, GENESIS))
        seqs[dag] = seqs.get(dag, 0) + 1
        data, chain = encode_event(
            event, seq=seqs[dag], shard_seq=shard_seq + 1, writer=1, cause="timer", previous=chain
        )
        heads[shard] = (shard_seq + 1, chain)
        producer.send(Append(EVENTS, dag.encode(), data, partition=shard))

    replace = msgspec.structs.replace
    names = [f"past_{index:02}" for index in range(DAGS)]
    for name in names:
        write(replace(deployed, dag=name), name)
    while written < records:
        name = names[number % DAGS]
        for event in run:
            write(replace(event, dag=name, run_id=f"r{number:06}"), name)
        number += 1
        written += len(run)
    producer.flush(120)
    producer.close()
    return written + DAGS


def _a_run(output_bytes: int) -> tuple[e.DagDeployed, list[e.RunEvent]]:
    """What a whole run of 20 tasks leaves in the journal."""
    world = World(CelEvaluator(), partitions=1)
    outcome = Outcome(output="x" * output_bytes if output_bytes else None)
    world.add_worker(slots=4, pool="nobody", behaviour=lambda _: outcome)
    world.deploy(fan("past", "nobody"))
    world.ask(c.StartRun(dag="past", run_id="r"))
    world.settle()
    (deployed,) = world.events(e.DagDeployed)
    assert isinstance(deployed, e.DagDeployed)
    return deployed, [event for event in world.events() if isinstance(event, e.RunEvent)]


@contextlib.contextmanager
def running(name: str, environment: dict[str, str], directory: Path, *arguments: str) -> Iterator[processes.Process]:
    """The service of that name, ended with the block."""
    process = processes.start(name, (name, *arguments), environment, directory)
    try:
        yield process
    finally:
        process.stop()


def _answered(log: Log, topic: str, key: str, ask: Callable[[Log], None]) -> float:
    """Seconds from the asking to the first event of ``key`` in a journal."""
    shard = partition_of(key.encode(), log.partitions)
    reader = log.reader({(topic, shard): log.end_offset(topic, shard)})
    begun = time.monotonic()
    ask(log)
    try:
        while time.monotonic() - begun < 600:
            for record in reader.read(10_000, 0.2):
                event = decode_event(record.value or b"").event
                if record.key == key.encode() and not isinstance(event, e.DagDeployed):
                    return time.monotonic() - begun
        raise RuntimeError(f"'{key}' was not answered within 600 s")
    finally:
        reader.close()


def _configure(log: Log) -> None:
    producer = log.producer()
    producer.send(Append(COMMANDS, b"spare", encode(c.ConfigurePool(actor="user:bench", pool="spare", slots=3))))
    producer.close()


def _trigger_calm(log: Log) -> None:
    Driver(log).trigger([("calm", f"calm-{wall_clock_ms()}")])


def _unread(log: Log) -> int:
    unread = 0
    for shard in range(log.partitions):
        unread += log.end_offset(TRIGGERS, shard) - (log.committed(shard)[TRIGGERS] or 0)
    return unread


def _projected(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass('tidewheel.projection_positions')").fetchone() == (None,):
            return 0
        query = "SELECT coalesce(sum(shard_seq), 0) FROM tidewheel.projection_positions WHERE topic = 'events'"
        row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def _page_through(url: str, pages: int = 60) -> int:
    """Read runs, and the audit of one, page after page as a script would."""
    read = 0
    with httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client:
        after = None
        while read < pages:
            page = client.get("/runs", params={"limit": 1000} | ({"after": after} if after else {})).json()
            client.get("/dags/past_00/runs/r000000/events", params={"limit": 1000}).raise_for_status()
            read, after = read + 2, page["next"]
            if after is None:
                break
    return read


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {timeout_s:.0f} s")
        time.sleep(0.25)


def report(figures: dict[str, Figures]) -> None:
    """Print and write what there is so far."""
    console.print(figures)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure both, print and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backlog", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="triggers, and events")
    parser.add_argument("--only", choices=["triggers", "events"], help="one of the two")
    arguments = parser.parse_args()
    log_to_stderr(logging.WARNING)
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="tidewheel-backlog-") as temporary, contextlib.ExitStack() as stack:
        directory = Path(temporary)
        directory.chmod(0o755)
        address = stack.enter_context(open_broker())
        postgres = stack.enter_context(EmbeddedPostgres(directory / "postgres", throwaway=True))
        for what in ("triggers", "events"):
            if arguments.only not in (None, what):
                continue
            url = f"kafka://{address}?partitions={PARTITIONS}&prefix={what}."
            log = open_log(url)
            stack.callback(log.close)
            log.create_topics()
            environment = {"TIDEWHEEL_LOG": url, "TIDEWHEEL_POSTGRES": postgres.dsn, "PYTHONPATH": str(Path.cwd())}
            console.print(f"{arguments.records:,} {what} …")
            if what == "triggers":
                figures[what] = flood_of_triggers(log, environment, directory, arguments.records)
            else:
                figures[what] = flood_of_events(log, postgres.dsn, environment, directory, arguments.records)
                figures["reading"] = reading(environment, directory)
            report(figures)
    console.print(f"written: {REPORT}")


if __name__ == "__main__":
    main()
