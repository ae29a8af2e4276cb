"""Runs the benchmark: starts a broker, Postgres and the services, drives the workloads, prints a table, writes
``build/bench.json``."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks import processes
from benchmarks.processes import Process
from benchmarks.tasks import noop
from benchmarks.workloads import Driver, chain, fan, wait_for_runs
from tidewheel.core import events as e
from tidewheel.core.workflow import Workflow
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.opening import open_log
from tidewheel.runtime.recovery import bring_up_to_date
from tidewheel.runtime.scheduler import Scheduler, wall_clock_ms
from tidewheel.runtime.shard import Shard
from tidewheel.testing.kafka_broker import open_broker
from tidewheel.worker import Worker
from tidewheel_services.embedded_postgres import EmbeddedPostgres
from tidewheel_services.process_log import log_to_stderr

REPORT = Path("build/bench.json")
console = Console(stderr=True)

#: name in the report → (what it says, unit, bar: at least or at most)
BARS: dict[str, tuple[str, str, str]] = {
    "tasks_per_s": ("no-op tasks, functions in an embedded worker, read model included", "/s", "≥ 1,000"),
    "tasks_per_s_runners": ("no-op tasks, Python callables in warm runners", "/s", ""),
    "tasks_per_s_shell": ("no-op tasks, a shell each", "/s", ""),
    "hop_ms_p50_kafka": ("a task's end to its successor's start, idle engine, Kafka", "ms", "≤ 20"),
    "hop_ms_p50_runners": ("the same, in warm runners", "ms", ""),
    "hop_ms_p50_shell": ("the same, a shell each", "ms", ""),
    "hop_ms_p50_embedded": ("the same, on the embedded log", "ms", "≤ 5"),
    "trigger_to_start_ms_p50": ("a record on triggers to the first task's start", "ms", ""),
    "cpu_ms_per_task": ("CPU of scheduler, worker and projector together", "ms", ""),
    "cpu_ms_per_task_servers": ("CPU of broker and Postgres together", "ms", ""),
    "replay_events_per_s": ("a journal folded from zero, from Kafka", "/s", "≥ 20,000"),
    "idle_cpu_percent": ("the busiest idle process, of one core", "%", "< 3"),
    "start_s": ("a scheduler from exec to ready", "s", "< 3"),
    "rss_mb": ("scheduler with 1,000 deployed DAGs", "MiB", "< 200"),
}


@dataclass
class Bench:
    """One installation under measurement."""

    driver: Driver
    dsn: str
    environment: dict[str, str]
    directory: Path
    servers: list[int]
    services: dict[str, Process] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    def start(self, name: str, *arguments: str) -> Process:
        """Start a service."""
        self.services[name] = processes.start(name, arguments, self.environment, self.directory)
        return self.services[name]

    def throughput(self, how: str, runs: int, dags: int = 10, timeout_s: float = 240.0) -> None:
        """Tasks per second from the first trigger to the last row, and what they cost."""
        names = [f"fan_{how}_{number}" for number in range(dags)]
        self.deploy([fan(name, how) for name in names])
        self.driver.trigger((name, f"warm-{how}-{name}") for name in names)
        wait_for_runs(self.dsn, f"warm-{how}-", len(names), timeout_s)
        time.sleep(1)
        before, servers_before = self.cpu(), self.servers_cpu()
        begun = time.monotonic()
        self.driver.trigger((names[number % dags], f"load-{how}-{number}") for number in range(runs))
        took = wait_for_runs(self.dsn, f"load-{how}-", runs, timeout_s) - begun
        tasks = runs * 20
        suffix = "" if how == "embedded" else f"_{how}"
        self.figures[f"tasks_per_s{suffix}"] = round(tasks / took, 1)
        used = {name: after - before[name] for name, after in self.cpu().items()}
        if how == "embedded":
            self.figures["cpu_ms_per_task"] = round(sum(used.values()) / tasks * 1000, 3)
            self.figures["cpu_ms_per_task_servers"] = round((self.servers_cpu() - servers_before) / tasks * 1000, 3)
            self.figures["cpu_ms_per_task_by_process"] = {n: round(s / tasks * 1000, 3) for n, s in used.items()}
        console.print(f"  {how}: {tasks} tasks in {took:.1f} s")

    def hops(self, how: str, runs: int = 20) -> None:
        """Milliseconds from a task's end to its successor's start, one run at a time."""
        name = f"chain_{how}"
        self.deploy([chain(name, how)])
        producer = self.driver.log.producer()
        self.driver.trigger([(name, f"warm-chain-{how}")], producer)
        wait_for_runs(self.dsn, f"warm-chain-{how}", 1, 60)
        starts = self.driver.ends()
        sent: dict[str, int] = {}
        for number in range(runs):
            time.sleep(0.1)
            sent[f"chain-{how}-{number:03}"] = wall_clock_ms()
            self.driver.trigger([(name, f"chain-{how}-{number:03}")], producer)
            wait_for_runs(self.dsn, f"chain-{how}-{number:03}", 1, 60)
        label = "kafka" if how == "embedded" else how
        events = self.driver.events_since(starts)
        self.figures[f"hop_ms_p50_{label}"] = hop_ms(events)
        if how == "embedded":
            self.figures["trigger_to_start_ms_p50"] = trigger_to_start_ms(events, sent)

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of each service."""
        return {name: process.cpu_s() for name, process in self.services.items()}

    def servers_cpu(self) -> float:
        """CPU seconds so far of broker and Postgres."""
        return sum(processes.cpu_of(pid) for pid in self.servers)

    def idle(self, seconds: float = 6.0) -> None:
        """What each service uses while nothing happens."""
        # What was written last is read back at 2,000 events a second, and checkpoints are finished.
        time.sleep(25)
        before = self.cpu()
        time.sleep(seconds)
        used = {name: (after - before[name]) / seconds * 100 for name, after in self.cpu().items()}
        self.figures["idle_cpu_percent"] = round(max(used.values()), 2)
        self.figures["idle_cpu_percent_by_process"] = {name: round(value, 2) for name, value in used.items()}

    def start_again(self) -> None:
        """How long the next scheduler takes from exec to ready, on a broker that has worked a while."""
        second = processes.start("second", ("scheduler", "--name", "second"), self.environment, self.directory)
        self.figures["start_s"] = round(processes.wait_for(second, "scheduler is up"), 2)
        second.stop()

    def memory(self, dags: int = 1_000) -> None:
        """The scheduler's resident memory with many DAGs deployed."""
        self.deploy([fan(f"many_{number}", "embedded") for number in range(dags)])
        self.figures["rss_mb"] = round(self.services["scheduler"].rss_mb(), 1)

    def deploy(self, workflows: list[Workflow]) -> None:
        """Deploy, and wait until all are there: a trigger of a DAG that is not known yet is a dead letter."""
        self.driver.deploy(workflows)
        names = [workflow.id for workflow in workflows]
        _wait_until(lambda: self.count_dags(names) == len(names), 60)

    def count_dags(self, names: list[str]) -> int:
        """How many of these the read model has."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("SELECT count(*) FROM dags WHERE dag = ANY(%s)", (names,)).fetchone()
        return 0 if row is None else int(row[0])

    def replay(self) -> None:
        """Fold every shard from zero."""
        begun = time.perf_counter()
        shards = [Shard(number) for number in range(self.driver.log.partitions)]
        events = bring_up_to_date(shards, self.driver.log, lambda: 0, snapshots=False)
        self.figures["replay_events"] = events
        self.figures["replay_events_per_s"] = round(events / (time.perf_counter() - begun))


def hop_ms(events: list[e.AnyEvent]) -> float:
    """Median over runs of the mean gap between a task's end and the next one's start (worker's clock, whole ms)."""
    times: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if isinstance(event, e.TaskSucceeded):
            times.setdefault(event.run_id, []).append((event.started_at, event.ended_at))
    means = []
    for spans in times.values():
        ordered = sorted(spans)
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(ordered)]
        means.append(statistics.fmean(gaps))
    return round(statistics.median(means), 2)


def trigger_to_start_ms(events: list[e.AnyEvent], sent: dict[str, int]) -> float:
    """Median over runs: from just before the record was sent to the first start."""
    first: dict[str, int] = {}
    for event in events:
        if isinstance(event, e.TaskSucceeded):
            first[event.run_id] = min(event.started_at, first.get(event.run_id, event.started_at))
    return round(statistics.median(first[run] - sent[run] for run in sent), 2)


def embedded_hop(directory: Path) -> float:
    """The chain on the embedded log: scheduler and worker as threads of this process."""
    log = open_log(f"sqlite://{directory}/embedded.db?partitions=4")
    log.create_topics()
    stop = threading.Event()
    scheduler = Scheduler(log, "bench", CelEvaluator())
    thread = threading.Thread(target=scheduler.run, args=(stop,))
    thread.start()
    worker = Worker(log, pools={"embedded": 8}, functions={"benchmarks.tasks:noop": noop})
    worker.start()
    driver = Driver(log)
    try:
        driver.deploy([chain("chain_embedded", "embedded")])
        for number in range(21):
            driver.trigger([("chain_embedded", f"run-{number}")])
            _wait_until(lambda n=number: _ended(driver) > n, 30)  # type: ignore[misc]
        events = driver.events_since(dict.fromkeys(range(log.partitions), 0))
        return hop_ms([event for event in events if getattr(event, "run_id", "") != "run-0"])
    finally:
        worker.stop(drain_s=1)
        stop.set()
        thread.join()
        log.close()


def _has_tables(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT to_regclass('dags')").fetchone()
    return row is not None and row[0] is not None


def _ended(driver: Driver) -> int:
    events = driver.events_since(dict.fromkeys(range(driver.log.partitions), 0))
    return sum(isinstance(event, e.RunSucceeded) for event in events)


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {timeout_s:.0f} s")
        time.sleep(0.05)


@contextlib.contextmanager
def installation() -> Iterator[Bench]:
    """A broker, Postgres, one scheduler, one projector, an embedded worker and a process worker."""
    with tempfile.TemporaryDirectory(prefix="tidewheel-bench-") as temporary, contextlib.ExitStack() as stack:
        directory = Path(temporary)
        console.print("starting Kafka and Postgres …")
        own = set(processes._descendants(os.getpid()))
        address = stack.enter_context(open_broker())
        postgres = stack.enter_context(EmbeddedPostgres(directory / "postgres"))
        servers = sorted(set(processes._descendants(os.getpid())) - own)
        url = f"kafka://{address}?partitions=32"
        log = open_log(url)
        stack.callback(log.close)
        log.create_topics()
        environment = {"TIDEWHEEL_LOG": url, "TIDEWHEEL_POSTGRES": postgres.dsn, "PYTHONPATH": str(Path.cwd())}
        bench = Bench(Driver(log), postgres.dsn, environment, directory, servers)
        stack.callback(lambda: [process.stop() for process in reversed(bench.services.values())])
        processes.wait_for(bench.start("scheduler", "scheduler", "--name", "first"), "scheduler is up")
        bench.start("projector", "projector")
        _wait_until(lambda: _has_tables(postgres.dsn), 30)
        bench.start("worker", "-m", "benchmarks.embedded_worker")
        bench.start("process-worker", "worker", "--pool", "runners=8", "--pool", "shell=8")
        yield bench


def report(figures: dict[str, Any]) -> None:
    """Print the table and write the file."""
    table = Table(title="Tidewheel bench: Kafka, Postgres and everything else on this machine", title_justify="left")
    for column, justify in (("figure", "left"), ("value", "right"), ("bar", "right"), ("what", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for name, (what, unit, bar) in BARS.items():
        if name in figures:
            table.add_row(name, f"{figures[name]:,} {unit}", bar, what)
    Console(width=140).print(table)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    console.print(f"written: {REPORT}")


def main() -> None:
    """Measure everything, or a part of it with ``--only``."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="runs of 20 tasks in the embedded throughput part")
    parser.add_argument("--only", choices=["throughput", "hops", "rest"], help="load, and this part alone")
    arguments = parser.parse_args()
    log_to_stderr(logging.WARNING)
    with installation() as bench:
        # Load first: a JVM that has just started takes twice as long for a transaction as one that has worked a while.
        console.print("runs of 1 → 18 → 1 …")
        bench.throughput("embedded", arguments.runs)
        if arguments.only is None:
            bench.throughput("runners", 100)
            bench.throughput("shell", 100)
        if arguments.only in (None, "hops"):
            for how in ("embedded", "runners", "shell"):
                console.print(f"chain of 20, {how} …")
                bench.hops(how)
            bench.figures["hop_ms_p50_embedded"] = embedded_hop(bench.directory)
        if arguments.only in (None, "rest"):
            console.print("idle …")
            bench.idle()
        if arguments.only in (None, "rest"):
            console.print("1,000 DAGs, replay …")
            bench.memory()
            bench.replay()
            bench.start_again()
        report(bench.figures)


if __name__ == "__main__":
    main()
