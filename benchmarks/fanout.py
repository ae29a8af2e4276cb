"""What a fan-out of ten thousand instances costs everybody else, on a real Kafka with real processes.

``python -m benchmarks.fanout`` (or ``make fanout``) prints the figures and writes ``build/fanout.json``. One run lists
the items, runs an instance for each and joins their outputs; meanwhile other DAGs, in the same pool and in one of their
own, are triggered all the time. Then a run of the same size is cancelled in the middle.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import processes
from benchmarks.workloads import Driver
from tidewheel.core import commands as c
from tidewheel.core import events as e
from tidewheel.core.workflow import Concurrency, Python, Task, Workflow
from tidewheel.log.interface import COMMANDS, EVENTS, MAIL, POOL_EVENTS, SNAPSHOTS, Append, Log
from tidewheel.log.opening import open_log
from tidewheel.runtime.scheduler import wall_clock_ms
from tidewheel.testing.kafka_broker import open_broker
from tidewheel.wire.codec import decode_event, encode
from tidewheel_services.process_log import log_to_stderr

REPORT = Path("build/fanout.json")
PARTITIONS = 8
#: Other DAGs, by the pool their tasks go to; one of them all is triggered every so often.
OTHERS = {"same_pool": "embedded", "own_pool": "calm"}
EVERY_S = 0.1
#: Within this time after its end, what a run has armed (its leases' timers) is gone.
FORGOTTEN_S = 45

console = Console(stderr=True)


def fan_out(name: str, items: int) -> Workflow:
    """A list, an instance for each of its items, and a join of their outputs that fails if one is missing."""
    tasks = (
        Task(id="items", action=Python(callable="benchmarks.tasks:numbers", with_={"count": items}), pool="embedded"),
        Task(
            id="load",
            needs=("items",),
            action=Python(callable="benchmarks.tasks:same", with_={"number": "${{ item }}"}),
            for_each="${{ tasks.items.output }}",
            max_items=max(items, 1),
            pool="embedded",
        ),
        Task(
            id="join",
            needs=("load",),
            action=Python(
                callable="benchmarks.tasks:join", with_={"numbers": "${{ tasks.load.output }}", "count": items}
            ),
            pool="embedded",
        ),
    )
    return Workflow(id=name, tasks=tasks)


def other(name: str, pool: str) -> Workflow:
    """Two tasks, one after the other."""
    action = Python(callable="benchmarks.tasks:noop")
    tasks = (Task(id="first", action=action, pool=pool), Task(id="second", needs=("first",), action=action, pool=pool))
    return Workflow(id=name, tasks=tasks, concurrency=Concurrency(max_runs=1_000))


@dataclass
class Watcher:
    """Reads along everything that owners write, and notes when it could be seen, and how large it was."""

    log: Log
    stop: threading.Event = field(default_factory=threading.Event)
    #: Largest value by topic, with what it was.
    largest: dict[str, tuple[int, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    #: When (ms) each run of the others was asked for, and its first task seen to be leased.
    asked: dict[str, int] = field(default_factory=dict)
    leased: dict[str, int] = field(default_factory=dict)
    #: From a task's being ready to its lease, by the journal, of the others.
    ready: dict[tuple[str, str, str], int] = field(default_factory=dict)
    waits: dict[str, list[int]] = field(default_factory=lambda: {how: [] for how in OTHERS})
    ended: dict[str, str] = field(default_factory=dict)

    def follow(self) -> None:
        """Read until told to stop."""
        topics = (EVENTS, POOL_EVENTS, MAIL, SNAPSHOTS)
        places = [(topic, number) for topic in topics for number in range(self.log.partitions)]
        reader = self.log.reader({place: self.log.end_offset(*place) for place in places})
        while not self.stop.is_set():
            for record in reader.read(5_000, 0.05):
                value = record.value or b""
                self.counts[record.topic] = self.counts.get(record.topic, 0) + 1
                event = decode_event(value).event if record.topic in (EVENTS, POOL_EVENTS) else None
                if len(value) > self.largest.get(record.topic, (0, ""))[0]:
                    self.largest[record.topic] = (len(value), type(event).__name__ if event else "")
                if record.topic == EVENTS:
                    self._note(event)
        reader.close()

    def _note(self, event: Any) -> None:
        if isinstance(event, e.RunSucceeded | e.RunFailed | e.RunCancelled):
            self.ended[event.run_id] = type(event).__name__
        if not isinstance(event, e.TaskQueued | e.TaskLeased) or event.dag not in OTHERS:
            return
        place = (event.dag, event.run_id, event.task)
        if isinstance(event, e.TaskQueued):
            self.ready[place] = event.at
            return
        self.waits[event.dag].append(event.at - self.ready[place])
        if event.task == "first":
            self.leased[event.run_id] = wall_clock_ms()


@contextlib.contextmanager
def watching(log: Log) -> Iterator[Watcher]:
    """A watcher for the time of the block."""
    watcher = Watcher(log)
    thread = threading.Thread(target=watcher.follow, daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stop.set()
        thread.join(30)


def spread(values: list[int]) -> dict[str, int]:
    """Median, 95th percentile and maximum."""
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
        "max": ordered[-1],
        "count": len(ordered),
    }


def measure(
    log: Log, scheduler: processes.Process, run_id: str, *, cancel_after_s: float | None, timeout_s: float = 600.0
) -> dict[str, Any]:
    """One run of the fan-out with the others beside it; cancelled after a while, if asked."""
    before, cpu = scheduler.rss_mb(), scheduler.cpu_s()
    driver, producer = Driver(log), log.producer()
    with watching(log) as watcher:
        time.sleep(1)
        begun = time.monotonic()
        driver.trigger([("fan", run_id)], producer)
        number, cancelled = 0, False
        while run_id not in watcher.ended:
            if time.monotonic() - begun > timeout_s:
                raise RuntimeError(f"run {run_id} has not ended within {timeout_s:.0f} s")
            if cancel_after_s is not None and not cancelled and time.monotonic() - begun > cancel_after_s:
                command = c.CancelRun(actor="user:bench", dag="fan", run_id=run_id, reason="enough")
                producer.send(Append(COMMANDS, b"fan", encode(command)))
                cancelled = True
            how = list(OTHERS)[number % len(OTHERS)]
            watcher.asked[f"{run_id}-{number}"] = wall_clock_ms()
            driver.trigger([(how, f"{run_id}-{number}")], producer)
            number += 1
            time.sleep(EVERY_S)
        took = time.monotonic() - begun
        time.sleep(5)
    producer.close()
    peak = scheduler.peak_mb()
    unseen = [asked for asked in watcher.asked if asked not in watcher.leased]
    if unseen:
        raise RuntimeError(f"{len(unseen)} runs beside {run_id} were not leased: {unseen[:3]}")
    time.sleep(FORGOTTEN_S)
    return {
        "ended": watcher.ended[run_id],
        "wall_s": round(took, 1),
        "events": watcher.counts.get(EVENTS, 0) + watcher.counts.get(POOL_EVENTS, 0),
        "others_asked_to_leased_ms": spread([watcher.leased[name] - at for name, at in watcher.asked.items()]),
        "others_ready_to_leased_ms": {how: spread(waits) for how, waits in watcher.waits.items()},
        "largest_bytes": {topic: {"bytes": size, "what": what} for topic, (size, what) in watcher.largest.items()},
        "scheduler_cpu_s": round(scheduler.cpu_s() - cpu, 1),
        "rss_before_mb": round(before, 1),
        "rss_peak_so_far_mb": round(peak, 1),
        "rss_after_mb": round(scheduler.rss_mb(), 1),
    }


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fanout", description=__doc__)
    parser.add_argument("--items", type=int, default=10_000, help="instances of the fan-out (a list of up to 64 KiB)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of it, one after the other")
    arguments = parser.parse_args()
    log_to_stderr(logging.WARNING)
    figures: dict[str, Any] = {"items": arguments.items}
    with tempfile.TemporaryDirectory(prefix="tidewheel-fanout-") as temporary, contextlib.ExitStack() as stack:
        directory = Path(temporary)
        url = f"kafka://{stack.enter_context(open_broker())}?partitions={PARTITIONS}"
        log = open_log(url)
        stack.callback(log.close)
        log.create_topics()
        environment = {"TIDEWHEEL_LOG": url, "PYTHONPATH": str(Path.cwd())}
        scheduler = processes.start("scheduler", ("scheduler",), environment, directory)
        stack.callback(scheduler.stop)
        processes.wait_for(scheduler, "scheduler is up")
        worker = ("-m", "benchmarks.embedded_worker", "embedded=512", "calm=8")
        stack.callback(processes.start("worker", worker, environment, directory).stop)
        Driver(log).deploy([fan_out("fan", arguments.items), *(other(name, pool) for name, pool in OTHERS.items())])
        Driver(log).trigger((name, f"warm-{name}") for name in OTHERS)
        time.sleep(5)
        for number in range(arguments.rounds + 1):
            last = number == arguments.rounds
            name = "cancelled" if last else f"round_{number + 1}"
            console.print(f"{name} …")
            figures[name] = measure(log, scheduler, name, cancel_after_s=3.0 if last else None)
            figures[name]["load_average"] = round(os.getloadavg()[0], 1)
            console.print(figures[name])
            REPORT.parent.mkdir(exist_ok=True)
            REPORT.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    console.print(f"written: {REPORT}")


if __name__ == "__main__":
    main()
