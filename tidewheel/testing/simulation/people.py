"""What people do to a world, and what other systems do: rightly, by mistake, too late, or twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tidewheel.core import commands as c
from tidewheel.core.mapping import written_task
from tidewheel.core.state import Dag
from tidewheel.log.interface import TRIGGERS, Append
from tidewheel.testing.simulation.authors import DAGS
from tidewheel.testing.simulation.recalling import told_of
from tidewheel.testing.simulation.services import URLS, State
from tidewheel.testing.simulation.triggers import FEED_TOPICS
from tidewheel.testing.simulation.world import TroubledWorld
from tidewheel.testing.world import START_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidewheel.runtime.shard import Shard


class People:
    """Authors, operators, strangers and services of others. ``deeds`` says how often each thing is done."""

    def __init__(self, world: TroubledWorld) -> None:
        self._world = world
        self._rng = world.random
        self._requests = 0

    @property
    def deeds(self) -> dict[Callable[[], None], int]:
        """Everything that they do, with its weight."""
        return {
            self._operate: 6,
            self._operate_run: 5,
            self._trigger: 3,
            self._publish: 3,
            self._turn_service: 1,
            self._backfill: 2,
        }

    def _operate(self) -> None:
        world, rng = self._world, self._rng
        dag = rng.choice(DAGS)
        match rng.randint(0, 11):
            case 0 | 1:
                world.send(c.StartRun(dag=dag, run_id=f"r{rng.randint(0, 12)}"))
            case 2 | 3:
                world.send(self._request(c.StartRun(dag=dag)))
            case 4 | 5:
                live = sorted(run for process in world.processes for run in live_runs(process.shards.values(), dag))
                world.send(c.CancelRun(dag=dag, run_id=rng.choice(live) if live else "r1", reason="wrong"))
            case 6:
                world.send(self._request(c.PauseDag(dag=dag)))
                world.after(rng.choice([0, 4_000, 60_000]), lambda: world.send(c.UnpauseDag(dag=dag)))
            case 7 | 8:
                world.author(dag)
            case 9 | 10:
                self._answer()
            case _:
                world.send(c.RemoveDag(dag=dag))
                world.after(rng.choice([0, 30_000]), lambda: world.author(dag))

    def _operate_run(self) -> None:
        dag = self._rng.choice(DAGS)
        if self._rng.random() < 0.4:
            self._mark(dag)
        else:
            self._clear(dag)

    def _mark(self, dag: str) -> None:
        """Somebody says how a task ended, mostly one that has begun."""
        rng = self._rng
        run_id, task = self._some_task(dag)
        state: c.Mark = rng.choice(["success", "failed", "skipped"])
        said: dict[str, Any] = {"dag": dag, "run_id": run_id, "actor": "user:ann", **told_of(self._world, dag, run_id)}
        output = rng.choice([None, '{"n": 3}']) if state == "success" else None
        self._world.send(c.MarkTask(**said, task=task, state=state, output=output, downstream=rng.random() < 0.3))

    def _clear(self, dag: str) -> None:
        """Somebody lets tasks begin anew."""
        rng = self._rng
        run_id, task = self._some_task(dag)
        tasks = rng.choice([[], [task], [task], [task, f"t{rng.randint(0, 6)}"]])
        choices: dict[str, Any] = {
            name: rng.random() < 0.4 for name in ("downstream", "upstream", "only_failed", "latest")
        }
        said: dict[str, Any] = {"dag": dag, "run_id": run_id, "actor": "user:ann", **told_of(self._world, dag, run_id)}
        self._world.send(c.ClearTasks(**said, **choices, tasks=json.dumps(tasks), preview=rng.random() < 0.1))

    def _some_task(self, dag: str) -> tuple[str, str]:
        """A task of a run, mostly one that has begun."""
        rng = self._rng
        begun = [place for place in self._world.started[-60:] if place[0] == dag]
        _, run_id, task, _ = rng.choice(begun or [(dag, f"r{rng.randint(0, 25)}", f"t{rng.randint(0, 6)}", 1)])
        if rng.random() < 0.3:
            task = rng.choice([written_task(task), f"t{rng.randint(0, 6)}", f"{written_task(task)}[1]"])
        return run_id, task

    def _answer(self) -> None:
        """Tasks that wait are answered: rightly, or by mistake, or too late."""
        world, rng = self._world, self._rng
        shards = [shard for process in world.processes for shard in process.shards.values()]
        waiting = sorted(waiting_tasks(shards))
        for dag, run_id, task, attempt, waits_for in rng.sample(waiting, min(3, len(waiting))):
            place: dict[str, Any] = {"dag": dag, "run_id": run_id, "task": task}
            if (waits_for == "approval") == (rng.random() < 0.9):
                said: dict[str, Any] = {"approve": rng.random() < 0.7, "role": rng.choice(["", "boss", "clerk"])}
                attempt = rng.choice([0, attempt, attempt + 1])
                answer: c.Command = c.DecideApproval(actor="user:b", **place, attempt=attempt, **said)
            else:
                heard = {"output": "1"} if rng.random() < 0.7 else {"fault": "no such address"}
                attempt = rng.choice([attempt, attempt, attempt + 1])
                answer = c.ReportWait(actor="waiter", **place, attempt=attempt, **heard)
            world.send(answer)
            if rng.random() < 0.2:
                world.after(rng.choice([0, 0, 4_000, 40_000]), lambda answer=answer: world.send(answer))  # type: ignore[misc]

    def _backfill(self) -> None:
        """Runs for slots that have passed, the world's beginning before them all; or one of these is held or ended."""
        world, rng = self._world, self._rng
        dag = rng.choice(DAGS)
        match rng.randint(0, 5):
            case 0 | 1 | 2:
                since = START_MS - rng.choice([0, 400_000, 2_000_000])
                until = rng.choice([world.now, since + rng.choice([0, 300_000, 900_000]), world.now + 60_000])
                command = c.StartBackfill(
                    dag=dag,
                    since=since,
                    until=until,
                    order=rng.choice(("forward", "backward")),
                    mode=rng.choice(("parallel", "chunked")),
                    width=rng.choice([1, 2, 5]),
                    reprocess=rng.choice(("none", "none", "failed", "all")),
                )
                world.send(self._request(command))
            case 3:
                name = f"backfill-{rng.randint(1, 4)}"
                world.send(self._request(c.PauseBackfill(dag=dag, backfill_id=name)))
                resume = self._request(c.ResumeBackfill(dag=dag, backfill_id=name))
                world.after(rng.choice([0, 4_000, 60_000]), lambda: world.send(resume))
            case 4:
                rng.choice([self._cancel_backfill, self._cancel_backfill, self._hold_and_cancel])(dag)
            case _:
                # The same two times: it is one backfill, or the slots have runs by then.
                command = c.StartBackfill(dag=dag, since=START_MS - 600_000, until=START_MS, width=3)
                world.send(self._request(command))
                world.after(rng.choice([0, 30_000]), lambda: world.send(self._request(command)))

    def _hold_and_cancel(self, dag: str) -> None:
        """A backfill whose runs wait, because nothing of the DAG starts just now, is ended before they have begun."""
        world, rng = self._world, self._rng
        world.send(self._request(c.PauseDag(dag=dag)))
        world.send(self._request(c.StartBackfill(dag=dag, since=START_MS - 2_000_000, until=world.now, width=2)))
        world.after(rng.choice([4_000, 30_000]), lambda: self._cancel_backfill(dag))
        world.after(60_000, lambda: world.send(c.UnpauseDag(dag=dag)))

    def _cancel_backfill(self, dag: str) -> None:
        """One that is not over, if there is one."""
        rng = self._rng
        shards = [shard for process in self._world.processes for shard in process.shards.values()]
        live = sorted({backfill.backfill_id for state in states_of(shards, dag) for backfill in state.backfills})
        name = rng.choice(live or [f"backfill-{rng.randint(1, 4)}"])
        self._world.send(self._request(c.CancelBackfill(dag=dag, backfill_id=name, running=rng.random() < 0.3)))

    def _request(self, command: c.Request) -> c.Request:
        """The same command, with somebody waiting for the answer."""
        self._requests += 1
        return msgspec.structs.replace(command, request_id=str(self._requests), receiver="api")

    def _trigger(self) -> None:
        rng = self._rng
        document: dict[str, Any] = {"dag": rng.choice(DAGS)}
        match rng.randint(0, 4):
            case 0:
                document["id"] = f"order-{rng.randint(0, 40)}"
            case 1:
                document["run_id"] = f"r{rng.randint(0, 25)}"
            case 2:
                document["inputs"] = {"n": rng.randint(0, 9)}
        value = json.dumps(document).encode()
        self._world.producer.send(Append(TRIGGERS, document["dag"].encode(), value))

    def _publish(self) -> None:
        """A record on a topic of others, which triggers may name, or several at the same instant."""
        rng = self._rng
        topic = rng.choice(list(FEED_TOPICS))
        for _ in range(rng.choice([1, 1, 1, 3])):
            key = rng.choice([None, *(b"k%d" % number for number in range(12))])
            value = rng.choice([b'{"n": 1}', b'{"n": 1}', b'{"n": 2}', b"no JSON", None])
            self._world.feed.publish(topic, key, value)

    def _turn_service(self) -> None:
        """A service of others is there, or is not, or will never be."""
        state: State = self._rng.choice(["up", "up", "down", "down", "gone"])
        self._world.services.turn(self._rng.choice(URLS), state)


def states_of(shards: Iterable[Shard], dag: str) -> Iterator[Dag]:
    """The DAG as these shards have it in memory."""
    for shard in shards:
        for state in shard.aggregates.values():
            if isinstance(state, Dag) and state.dag == dag:
                yield state


def live_runs(shards: Iterable[Shard], dag: str) -> list[str]:
    """Runs of the DAG in these shards' memory, sorted so that the same seed gives the same world."""
    return sorted(run_id for state in states_of(shards, dag) for run_id in state.runs)


def waiting_tasks(shards: Iterable[Shard]) -> Iterator[tuple[str, str, str, int, str]]:
    """DAG, run, task and attempt of what waits without a worker, and what for."""
    for shard in shards:
        for state in shard.aggregates.values():
            if isinstance(state, Dag):
                for run in state.runs.values():
                    for name, task in run.tasks.items():
                        if task.wait is not None:
                            yield state.dag, run.run_id, name, task.attempt, task.wait.waits_for
