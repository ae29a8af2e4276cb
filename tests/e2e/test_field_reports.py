"""What broke in other engines, tried on all of Tidewheel in one process: SQLite log, Postgres, API, process worker.

The ids are those of docs/field-reports.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.e2e.running import Process, document, eventually, tidewheel
from tests.http_service import Answer, Request, http_service
from tidewheel.log.interface import DEAD_LETTERS, TOPICS, TRIGGERS, Append, LogError
from tidewheel.log.opening import open_log
from tidewheel.wire.codec import decode
from tidewheel.wire.messages import DeadLetter

TOKEN = "tok/3n+9f8e7d6c5b4a3f2e1d"
PASSWORD = 'p@ss/"wörd"\\ with\N{KEY} 1234567'
LARGE = 2 * 1024 * 1024


def echo_of(request: Request) -> Answer:
    """Answers with what it was asked with."""
    given, fails = request.headers["authorization"], "fail" in request.path
    headers, pad = {"X-Echo": given}, b"-" * 480 * fails
    if "json" in request.path:
        body = json.dumps({"you said": given}).replace("/", "\\/").encode()
        return Answer(200, pad + body, "application/json", headers)
    return Answer(500 if fails else 200, pad + given.encode(), headers=headers)


PYTHON = """
import base64, hashlib, os, time
from tidewheel.task import current

def give(proof):
    password = os.environ["PW"]
    open(proof, "w").write(hashlib.sha256(password.encode()).hexdigest())
    current().heartbeat({"using": password})
    current().log("with " + password)
    time.sleep(1.2)
    print(repr(password), base64.b64encode(b"user:" + password.encode()).decode())
    return {"nested": [{password: "key"}, "text " + password], "token": os.environ["TOKEN"]}

def fail():
    try:
        raise KeyError(os.environ["TOKEN"])
    except KeyError as error:
        raise RuntimeError("no entry with " + os.environ["PW"] + " " * 7800 + os.environ["PW"]) from error

def large():
    return "x" * (2 * 1024 * 1024)
"""


def secretive(url: str, proof: Path) -> dict[str, Any]:
    env = {"PW": "${{ secrets.password }}", "TOKEN": "${{ secrets.token }}"}
    in_pieces = """
    printf '%s' "$PW" | head -c 5; sleep 0.4; printf '%s' "$PW" | tail -c +6; echo
    for letter in $(printf '%s' "$TOKEN" | fold -w 1); do printf '%s' "$letter"; sleep 0.02; done; echo
    printf '%s' "$TOKEN" | base64; printf 'me:%s' "$PW" | base64; env; echo "oh: $TOKEN" >&2
    printf '{"escaped": "%s"}' "$(printf '%s' "$TOKEN" | sed 's_/_\\\\/_g')" > "$TIDEWHEEL_OUTPUT"
    """
    failing = 'printf "%s%0.480d\\n" "$TOKEN" 0 >&2; exit 3'
    headers = {"Authorization": "Bearer ${{ secrets.token }}"}
    return {
        "id": "secretive",
        "env": {"DSN": "postgresql://me:${{ secrets.password }}@db/x"},
        "tasks": [
            {"id": "pieces", "run": in_pieces, "env": env},
            {"id": "failing", "run": failing, "env": env, "retry": {"max": 1, "delay": "1s"}},
            {"id": "give", "python": "leaky:give", "with": {"proof": str(proof)}, "env": env},
            {"id": "fail", "python": "leaky:fail", "env": env},
            {"id": "missing", "run": "true", "env": {"X": "${{ secrets.token }} ${{ secrets.nowhere }}"}},
            {"id": "ask", "http": {"url": f"{url}/json", "headers": headers}},
            {"id": "ask_text", "http": {"url": f"{url}/text", "headers": headers}},
            {"id": "ask_badly", "http": {"url": f"{url}/fail", "headers": headers}},
            {"id": "odd_header", "http": {"url": url, "headers": {"X-Odd": "${{ secrets.password }}"}}},
            {
                "id": "template",
                "needs": ["pieces"],
                "run": "true",
                "env": {"T": "${{ secrets.token }} ${{ tasks.pieces.output.escaped.deeper }}"},
            },
            {
                "id": "handed_on",
                "needs": ["pieces"],
                "run": 'echo "$GOT"',
                "env": {"GOT": "${{ tasks.pieces.output.escaped }}"},
            },
        ],
    }


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with http_service(echo_of) as url:
        yield url


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory, echo: str) -> Path:
    directory: Path = tmp_path_factory.mktemp("reports") / "flows"
    directory.mkdir()
    (directory / "leaky.py").write_text(PYTHON)
    tasks: dict[str, dict[str, Any]] = {
        "emoji": {"run": "printf 'größe \\360\\237\\214\\212\\n'; printf 'err \\360\\237\\224\\245\\n' >&2"},
        "large_file": {"run": f'head -c {LARGE} /dev/zero | tr "\\0" 1 > "$TIDEWHEEL_OUTPUT"'},
        "large_value": {"python": "leaky:large"},
    }
    flows: list[dict[str, Any]] = [{"id": name, "tasks": [{"id": "a", **task}]} for name, task in tasks.items()]
    shell = {"id": "a", "run": 'printf "<%s>\\n" "$NAME"', "env": {"NAME": "${{ inputs.name }}"}}
    flows.append({"id": "quoted", "inputs": {"name": {"type": "string"}}, "tasks": [shell]})
    sized = {"data": {"type": "array"}}
    flows.append({"id": "sized", "inputs": sized, "tasks": [{"id": "a", "run": "true"}]})
    flows.append({"id": "many", "concurrency": {"max_runs": 20}, "tasks": [{"id": "a", "run": "sleep 60"}]})
    flows.append(secretive(echo, directory.parent / "proof"))
    for flow in flows:
        (directory / f"{flow['id']}.yaml").write_text(json.dumps(flow))
    return directory


@pytest.fixture(scope="module")
def running(flows: Path) -> Iterator[tuple[Process, dict[str, str]]]:
    """`tidewheel dev` with everything it says on record, and where it all is."""
    secrets = {"TIDEWHEEL_SECRET_TOKEN": TOKEN, "TIDEWHEEL_SECRET_PASSWORD": PASSWORD}
    arguments = ("dev", flows, "--port", "0", "--verbose", "--slots", "8")
    with Process(*arguments, output=flows.parent / "dev.out", env=secrets) as process:
        process.wait_for("in other terminals")
        lines = (flows / ".tidewheel" / "environment").read_text().splitlines()
        yield process, dict(shlex.split(line)[1].split("=", 1) for line in lines)


@pytest.fixture
def api(running: tuple[Process, dict[str, str]]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running[1]["TIDEWHEEL_API"] + "/api/v1", timeout=60) as client:
        yield client


def run_to_its_end(api: httpx.Client, dag: str, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    started = api.post(f"/dags/{dag}/runs", json={"inputs": inputs or {}})
    assert started.status_code == 201, started.text
    run = f"/dags/{dag}/runs/{started.json()['run_id']}"
    api.get(run, params={"position": started.json()["position"]}).raise_for_status()
    eventually(lambda: api.get(run).json()["ended_at"], what=run)
    found: dict[str, Any] = api.get(run).json()
    return found


def test_c095_no_secret_in_any_topic_table_answer_or_process_log(
    running: tuple[Process, dict[str, str]], flows: Path, api: httpx.Client
) -> None:
    process, env = running
    run = run_to_its_end(api, "secretive")
    tasks = {task["task"]: task for task in api.get(f"/dags/secretive/runs/{run['run_id']}/tasks").json()["items"]}
    assert {name: task["state"] for name, task in tasks.items()} == {
        "pieces": "success",
        "failing": "failed",
        "give": "success",
        "fail": "failed",
        "missing": "failed",
        "ask": "success",
        "ask_text": "success",
        "ask_badly": "failed",
        "odd_header": "failed",
        "template": "failed",
        "handed_on": "success",
    }
    assert tasks["template"]["reason"] and "'nowhere' is missing" in tasks["missing"]["reason"]
    proof = (flows.parent / "proof").read_text()
    assert proof == hashlib.sha256(PASSWORD.encode()).hexdigest(), "the task was given the secret itself"
    answers = every_answer(api, run["run_id"])
    topics = every_record(env["TIDEWHEEL_LOG"])
    tables = every_row(env["TIDEWHEEL_POSTGRES"])
    for place, data in (("answers", answers), ("topics", topics), ("tables", tables)):
        assert b"***" in data, f"nothing of the run is in the {place}"
        assert_silent(place, data)
    assert_silent("the process's own log", process.output.read_bytes())
    for file in (flows / ".tidewheel").rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert_silent(str(file), file.read_bytes())


def assert_silent(place: str, data: bytes) -> None:
    """Neither secret is in there: plain, in half, as JSON or base64."""
    for secret in (TOKEN, PASSWORD):
        plain = secret.encode()
        forms = {plain, plain[:10], plain[-10:], json.dumps(secret)[1:-1].encode(), plain.replace(b"/", b"\\/")}
        for before in (b"", b"m", b"me:"):
            forms.add(base64.b64encode(before + plain)[4:-4])
        for form in forms:
            at = data.find(form)
            assert at < 0, f"{form!r} in {place}: …{data[max(0, at - 200) : at + 100]!r}"


def every_record(url: str) -> bytes:
    """Each key, header and value on the log."""
    log = open_log(url)
    found: list[bytes] = []
    try:
        for topic in TOPICS:
            for partition in range(log.partitions):
                reader, end = log.reader({(topic, partition): 0}), log.end_offset(topic, partition)
                while reader.positions()[topic, partition] < end:
                    for record in reader.read(1_000, 1.0):
                        found += [record.key or b"", record.value or b"", *(value for _, value in record.headers)]
                reader.close()
    finally:
        log.close()
    return b"\n".join(found)


def every_row(dsn: str) -> bytes:
    """Each row of each table, values as they are kept."""
    found: list[bytes] = []
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        assert len(tables) > 5
        for table in tables:
            for form in ("binary", "text"):
                copy = sql.SQL("COPY {} TO STDOUT (FORMAT {})").format(sql.Identifier(*table), sql.SQL(form))
                with connection.cursor().copy(copy) as rows:
                    found += [bytes(block) for block in rows]
    return b"\n".join(found)


def every_answer(api: httpx.Client, run_id: str) -> bytes:
    """What each route says of the run, in each of its forms."""
    dag, run = "/dags/secretive", f"/dags/secretive/runs/{run_id}"
    found = ["/dags", dag, f"{dag}/versions", f"{dag}/events", f"{dag}/runs", "/runs", "/pools", "/workers", "/lag"]
    found += [f"{dag}/versions/{row['version']}" for row in api.get(f"{dag}/versions").json()["items"]]
    found += [run, f"{run}/tasks", f"{run}/attempts", f"{run}/events"]
    logs = []
    for attempt in api.get(f"{run}/attempts").json()["items"]:
        task = f"{run}/tasks/{attempt['task']}"
        found += [task, f"{task}/attempts"]
        logs.append(f"{task}/attempts/{attempt['attempt']}/logs")
    answers = [api.get(path) for path in dict.fromkeys(found)]
    answers += [api.get(path, headers={"Accept": kind}) for path in logs for kind in ("text/plain", "application/json")]
    with ThreadPoolExecutor(16) as pool:
        answers += pool.map(lambda path: api.get(path, params={"follow": True}), logs)
    answers.append(httpx.get(str(api.base_url).replace("/api/v1/", "/metrics")))
    assert [answer.url for answer in answers if answer.status_code != 200] == []
    # JSON both as it was sent and as it is read.
    read = [json.dumps(a.json(), ensure_ascii=False).encode() for a in answers if "json" in a.headers["content-type"]]
    return b"\n".join([*(answer.content for answer in answers), *read])


@pytest.mark.parametrize("surroundings", [{"LANG": "C"}, {"LC_ALL": "POSIX"}])
def test_c086_a_picture_letter_is_shown_under_any_locale(
    running: tuple[Process, dict[str, str]], api: httpx.Client, surroundings: dict[str, str]
) -> None:
    run = run_to_its_end(api, "emoji")
    eventually(lambda: len(tidewheel("logs", "emoji", run["run_id"], "a", env=running[1]).stdout) > 3)
    env = {**running[1], "LC_ALL": "", "PYTHONIOENCODING": "", **surroundings}
    shown = tidewheel("logs", "emoji", run["run_id"], "a", env=env)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "größe \N{WATER WAVE}\n", "err \N{FIRE}\n")


def test_c128_a_parameter_from_the_command_line_is_one_argument(
    running: tuple[Process, dict[str, str]], api: httpx.Client
) -> None:
    env = running[1]
    run = document("trigger", "quoted", "--input", "name=x; echo hacked", "--wait", env=env)
    assert run["state"] == "success"
    logs = ("logs", "quoted", run["run_id"], "a")
    eventually(lambda: tidewheel(*logs, env=env).stdout == "<x; echo hacked>\n")


def test_c085_parameters_over_the_limit_are_refused_with_its_name(
    running: tuple[Process, dict[str, str]], api: httpx.Client
) -> None:
    _, env = running
    assert run_to_its_end(api, "sized", {"data": ["x" * 100] * 500})["state"] == "success"
    for size, limit in ((LARGE // 500, "2048 KiB"), (LARGE // 550, "65,536")):
        refused = api.post("/dags/sized/runs", json={"inputs": {"data": ["x" * size] * 500}})
        assert refused.status_code == 413, refused.text
        assert limit in refused.json()["detail"], refused.text
    log = open_log(env["TIDEWHEEL_LOG"])
    producer = log.producer()

    def trigger(size: int) -> None:
        value = json.dumps({"dag": "sized", "id": f"of-{size}", "inputs": {"data": ["x" * (size // 500)] * 500}})
        producer.send(Append(TRIGGERS, b"sized", value.encode()))
        producer.flush(10)

    try:
        with pytest.raises(LogError, match="over the limit of 1500000"):
            trigger(LARGE)
        for size in (1_200_000, 400_000, 100_000):
            trigger(size)
        letters = eventually(lambda: dead_letters(log, 3), what="three dead letters")
    finally:
        producer.close()
        log.close()
    assert [(letter.code, letter.topic) for letter in letters] == [
        ("oversized", "triggers"),
        ("invalid", "triggers"),
        ("invalid", "triggers"),
    ]
    for letter, limit in zip(letters, ("983040", "65", "65"), strict=True):
        assert limit in letter.reason, letter.reason
    assert [run["kind"] for run in api.get("/dags/sized/runs").json()["items"]] == ["api"]


def dead_letters(log: Any, count: int) -> list[DeadLetter] | None:
    found: list[Any] = []
    for partition in range(log.partitions):
        reader = log.reader({(DEAD_LETTERS, partition): 0})
        found += [decode(record.value) for record in reader.read(100, 0)]
        reader.close()
    return sorted(found, key=lambda letter: letter.offset) if len(found) >= count else None


@pytest.mark.parametrize("dag", ["large_file", "large_value"])
def test_c085_an_output_over_the_limit_fails_the_task(api: httpx.Client, dag: str) -> None:
    run = run_to_its_end(api, dag)
    attempt = api.get(f"/dags/{dag}/runs/{run['run_id']}/tasks/a/attempts").json()["items"][0]
    assert (run["state"], attempt["kind"]) == ("failed", "output")
    assert "65536" in attempt["message"]


def test_c085_large_parameters_do_not_multiply_in_memory(
    running: tuple[Process, dict[str, str]], api: httpx.Client
) -> None:
    process, _ = running
    body = json.dumps({"inputs": {"data": ["x" * (LARGE // 550)] * 500}})

    def ask(_: int) -> int:
        headers = {"Content-Type": "application/json"}
        return httpx.post(f"{api.base_url}dags/sized/runs", content=body, headers=headers, timeout=60).status_code

    together = 8
    with ThreadPoolExecutor(together) as pool:
        assert set(pool.map(ask, range(together))) == {413}
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        before = memory_kib(process.pid, "VmRSS")
        assert set(pool.map(ask, range(together))) == {413}
    grown = (memory_kib(process.pid, "VmHWM") - before) * 1024
    assert grown < 3 * together * len(body), f"{grown:,} bytes for {together} x {len(body):,}"


def memory_kib(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":"))


def test_c122_a_cancel_of_five_hundred_runs_meets_no_deadlock(
    running: tuple[Process, dict[str, str]], api: httpx.Client
) -> None:
    process, env = running
    names = [f"run-{number:03}" for number in range(500)]
    reads = ("/runs", "/dags/many/runs", "/dags/many", "/pools")

    def start(name: str) -> int:
        return api.post("/dags/many/runs", json={"run_id": name}).status_code

    def cancel(name: str) -> int:
        status = api.post(f"/dags/many/runs/{name}/cancel", json={"reason": "all"}).status_code
        return status if name[-1] != "7" else api.get(reads[int(name[-2]) % 4]).status_code

    with ThreadPoolExecutor(16) as pool:
        started = pool.map(start, names)
        # Newest first, while the last are still being started and the projector writes both.
        cancelled = list(pool.map(cancel, names[:250][::-1])), list(pool.map(cancel, names[250:][::-1]))
        assert set(started) == {201}
    assert {status for half in cancelled for status in half} <= {200, 202}, cancelled
    eventually(lambda: {run["state"] for run in every_run(api)} == {"cancelled"}, what="all runs cancelled")
    assert sorted(run["run_id"] for run in every_run(api)) == names
    with psycopg.connect(env["TIDEWHEEL_POSTGRES"]) as connection:
        deadlocks = connection.execute("SELECT sum(deadlocks) FROM pg_stat_database").fetchone()
    assert deadlocks == (0,)
    assert "deadlock" not in process.said.lower()
    assert tidewheel("verify", env=env).returncode == 0


def every_run(api: httpx.Client) -> list[dict[str, Any]]:
    return list(api.get("/dags/many/runs", params={"limit": 1_000}).json()["items"])
