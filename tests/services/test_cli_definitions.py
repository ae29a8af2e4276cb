"""The commands that need no server, as a shell and a program see them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidewheel_services.cli.app import app

GOOD = "id: hello\nschedule: '0 6 * * *'\ntasks: [{id: hello, run: echo hi}]\n"


def tidewheel(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program as it is installed."""
    return subprocess.run(
        [sys.executable, "-m", "tidewheel_services.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )


def test_help_names_every_command_and_is_quick() -> None:
    # Its own work, not what else the machine does meanwhile.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = tidewheel("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert shown.returncode == 0
    for command in ("init", "validate", "plan", "deploy", "dev", "demo", "trigger", "show", "logs", "verify", "doctor"):
        assert f" {command} " in shown.stdout
    assert took < 3.0


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, tidewheel_services.cli; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"fastapi", "uvicorn", "httpx", "psycopg", "confluent_kafka", "cel_expr_python", "yaml", "msgspec"}
    assert heavy & set(modules) <= {"msgspec"}


def test_good_files_pass(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    done = tidewheel("validate", tmp_path, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_yaml_of_other_tools_is_passed_over_in_a_directory_and_told(tmp_path: Path) -> None:
    compose = tmp_path / "docker-compose.yml"
    compose.write_text("services: {db: {image: postgres}}\n")
    alone = tidewheel("validate", tmp_path)
    assert alone.returncode == 1 and "no workflow file" in alone.stderr and "docker-compose.yml" in alone.stderr
    (tmp_path / "a.yaml").write_text(GOOD)
    told = tidewheel("validate", tmp_path)
    assert told.stdout.splitlines() == [
        f"passed over, since it has neither 'id' nor 'tasks' at the top: {compose}",
        "1 file good",
    ]
    assert json.loads(tidewheel("validate", tmp_path, "--json").stdout) == []
    named = tidewheel("validate", compose)
    assert named.returncode == 1 and "needs the key 'tasks'" in named.stdout, "what is named is judged"
    (tmp_path / "c.yaml").write_text("id: broken\ntasks: [\n")
    assert tidewheel("validate", tmp_path).returncode == 1


def test_validate_takes_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("id: hello\ntasks: [{id: a}]\n")
    told = CliRunner().invoke(app, ["validate"])
    assert told.exit_code == 1 and "a.yaml:2:9" in told.output, told.output


def test_every_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "id: hello\ntasks:\n  - id: a\n    run: echo\n    tiemout: 5m\n  - id: b\n    run: x\n    needs: [c]\n"
    )
    done = tidewheel("validate", file, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert [set(mistake) for mistake in found] == [{"file", "line", "column", "code", "message"}] * len(found)
    assert {(mistake["line"], mistake["file"]) for mistake in found} == {(5, str(file)), (8, str(file))}
    assert "timeout" in found[0]["message"]


def test_people_see_the_line_itself(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("id: hello\ntasks:\n  - id: a\n    run: '[bold]echo[/]'\n    tiemout: 5m\n")
    done = tidewheel("validate", file)
    assert done.returncode == 1
    assert f"{file}:5:5: " in done.stdout
    assert "    5 |     tiemout: 5m\n      |     ^\n" in done.stdout


def test_a_letter_the_terminal_cannot_show_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("id: hello\ntasks:\n  - id: a\n    run: echo 🌊\n    'ключ': 1\n")
    for encoding in ("ascii", "utf-8"):
        done = tidewheel("validate", file, "--json", env={"PYTHONIOENCODING": encoding})
        assert done.returncode == 1, done.stderr
        assert "ключ" in json.loads(done.stdout)[0]["message"]
        assert tidewheel("validate", file, env={"PYTHONIOENCODING": encoding}).returncode == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"id: \xff\n", "not_utf8"), (None, "unreadable")],
    ids=["not text", "not there"],
)
def test_a_file_that_cannot_be_read_is_a_mistake_too(tmp_path: Path, content: bytes | None, code: str) -> None:
    file = tmp_path / "a.yaml"
    if content is not None:
        file.write_bytes(content)
    done = tidewheel("validate", file, "--json")
    assert done.returncode == 1
    assert [mistake["code"] for mistake in json.loads(done.stdout)] == [code]


def test_what_only_follows_from_a_misspelt_key_is_not_told(tmp_path: Path) -> None:
    assert tidewheel("init", tmp_path / "flows").returncode == 0
    file = tmp_path / "flows" / "hello.yaml"
    file.write_text(file.read_text().replace("needs", "neds"))
    mistakes = json.loads(tidewheel("validate", file, "--json").stdout)
    assert [mistake["code"] for mistake in mistakes] == ["unknown_key", "unknown_key"]
    assert all("did you mean 'needs'" in mistake["message"] for mistake in mistakes)


def test_two_files_with_one_id_are_told_apart(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    (mistake,) = json.loads(tidewheel("validate", tmp_path, "--json").stdout)
    assert mistake["file"] == str(tmp_path / "b.yaml")
    assert str(tmp_path / "a.yaml") in mistake["message"]


def test_plan_previews_slots_over_a_clock_change() -> None:
    arguments = ["--cron", "30 2 * * *", "--timezone", "America/New_York", "--after", "2026-03-07T12:00:00Z"]
    done = tidewheel("plan", *arguments, "--count", "2", "--json")
    assert json.loads(done.stdout) == [
        {"slot": "2026-03-08T07:00:00Z", "fires_at": "2026-03-08T07:00:00Z"},
        {"slot": "2026-03-09T06:30:00Z", "fires_at": "2026-03-09T06:30:00Z"},
    ]


def test_plan_of_a_file_shows_its_jitter(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("id: hello\nschedule: {every: 1h, jitter: 10m}\ntasks: [{id: a, run: echo}]\n")
    planned = json.loads(tidewheel("plan", file, "--after", "2026-01-01", "--count", "3", "--json").stdout)
    assert [entry["slot"] for entry in planned] == [f"2026-01-01T0{hour}:00:00Z" for hour in range(3)]
    assert all(entry["slot"] < entry["fires_at"] < entry["slot"].replace(":00:00Z", ":10:00Z") for entry in planned)


@pytest.mark.parametrize(
    ("catchup", "said"),
    [
        ("none", "skips 9 slots (catchup is none"),
        ("latest", "runs 1 slot that passed (2026-03-10T06:00:00Z) and skips 8 slots"),
        ("all", "runs 9 slots that passed (2026-03-02T06:00:00Z to 2026-03-10T06:00:00Z)."),
    ],
)
def test_plan_tells_what_unpausing_would_run(tmp_path: Path, catchup: str, said: str) -> None:
    file = tmp_path / "a.yaml"
    # One month that is over: what has passed since is the same whenever this runs.
    file.write_text(
        f"id: hello\nschedule: {{cron: '0 6 2-10 3 *', catchup: {catchup}}}\ntasks: [{{id: a, run: echo}}]\n"
    )
    done = tidewheel("plan", file, "--paused-since", "2026-03-01", "--until", "2026-03-11", "--count", "1")
    assert (done.returncode, said in done.stdout) == (0, True), done.stdout


def test_plan_with_catchup_is_a_document(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("id: hello\nschedule: {every: 1m, catchup: all}\ntasks: [{id: a, run: echo}]\n")
    arguments = ["--paused-since", "2026-03-01", "--until", "2026-03-02", "--count", "1", "--catchup", "--json"]
    planned = json.loads(tidewheel("plan", file, *arguments).stdout)
    assert len(planned["slots"]) == 1
    assert (planned["state"], planned["cursor"]) == ("paused", "2026-03-01T00:00:00Z")
    # More than one decision hands out at once.
    owed = {"runs": 1440, "first": "2026-03-01T00:01:00Z", "last": "2026-03-02T00:00:00Z", "skipped": 0, "reason": ""}
    assert planned["catchup"] == owed
    # Without the flag the contract of scripts: slots alone, and nobody is asked.
    assert isinstance(json.loads(tidewheel("plan", file, "--count", "1", "--json").stdout), list)


def test_plan_of_a_new_dag_counts_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "id: hello\nschedule: {every: 1d, start: 2026-03-01, end: 2026-03-04, catchup: all}\n"
        "tasks: [{id: a, run: echo}]\n"
    )
    done = tidewheel("plan", file, "--api", "http://127.0.0.1:9", "--until", "2026-06-01")
    assert "as a new DAG, it runs 4 slots that passed (2026-03-01T00:00:00Z to 2026-03-04T00:00:00Z)" in done.stdout


def test_plan_without_an_api_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("id: hello\nschedule: '@daily'\ntasks: [{id: a, run: echo}]\n")
    done = tidewheel("plan", file, "--count", "1", "--api", "http://127.0.0.1:9")
    assert "No API at http://127.0.0.1:9" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plan"], 2, "either a workflow FILE or --cron"),
        (["plan", "--cron", "61 * * * *"], 1, "minute 61"),
        (["plan", "--cron", "* * * * *", "--timezone", "Europe/Berln"], 1, "Europe/Berlin"),
        (["plan", "--cron", "* * * * *", "--after", "yesterday"], 2, "ISO 8601"),
        (["plan", "/nowhere.yaml"], 1, "/nowhere.yaml"),
        (["plan", "--cron", "* * * * *", "--catchup"], 2, "need a workflow FILE"),
        (["verify", "--log", "sqlite:////nowhere/log.db"], 2, "there is no log at"),
        (["dead-letters", "--api", "http://127.0.0.1:9"], 2, "no API answers at http://127.0.0.1:9"),
        (["worker", "--pool", "default"], 2, "NAME=SLOTS"),
        (["worker", "--pool", "default=0"], 2, "NAME=SLOTS"),
        (["trigger", "x", "--input", "novalue"], 2, "NAME=VALUE"),
        (["trigger", "x", "--inputs", "[1]"], 2, "JSON object"),
        (["dev", "/nowhere"], 2, "/nowhere is no directory"),
        (["nonsense"], 2, "No such command"),
        (["runs", "--api", "http://127.0.0.1:9"], 2, "no API answers at http://127.0.0.1:9"),
        (["runs", "--api", "no url"], 2, "no url"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_at_the_prompt_is_one_clear_line(arguments: list[str], code: int, said: str) -> None:
    done = tidewheel(*arguments)
    assert done.returncode == code
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_schema_is_a_json_schema() -> None:
    schema = json.loads(tidewheel("schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "tasks" in schema["properties"]


def test_what_init_writes_is_valid_and_never_overwrites(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "flows"
    assert tidewheel("init", target).returncode == 0
    assert tidewheel("validate", target).returncode == 0
    (target / "hello.yaml").write_text("mine")
    again = tidewheel("init", target)
    assert again.returncode == 1
    assert "hello.yaml" in again.stderr
    assert (target / "hello.yaml").read_text() == "mine"


def test_templates_are_listed_and_valid(tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, list(map(str, arguments)))

    names = [line.split()[0] for line in run("init", "--list").output.splitlines()[1:]]
    assert names == ["hello", "etl", "scheduled", "python"]
    for name in names[1:]:
        assert run("init", tmp_path / name, "--template", name).exit_code == 0
        done = run("validate", tmp_path / name)
        assert (done.exit_code, done.output) == (0, "1 file good\n")
        assert json.loads((tmp_path / name / "workflow.schema.json").read_text())["properties"]["tasks"]
    refused = run("init", tmp_path / "x", "--template", "ettl")
    assert refused.exit_code == 2
    assert "did you mean 'etl'?" in refused.output


PYTHON = """from tidewheel.authoring import dag, shell
for name in ("one", "two"):
    with dag(name, schedule="0 6 * * *"):
        shell("hello", "echo hi")
"""


def test_dags_in_python_are_validated_and_planned_like_yaml(tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text(PYTHON)
    (tmp_path / "plain.py").write_text("raise SystemExit('nobody executes this')")
    assert tidewheel("validate", tmp_path).stdout == "1 file good\n"
    assert len(json.loads(tidewheel("plan", file, "--dag", "two", "--count", "2", "--json").stdout)) == 2
    which = tidewheel("plan", file)
    assert which.returncode == 2
    assert "one, two: say with --dag" in which.stderr
    (nothing,) = json.loads(tidewheel("validate", tmp_path / "plain.py", "--json").stdout)
    assert nothing["code"] == "no_dag"
    file.write_text(PYTHON.replace('echo hi"', 'echo hi", retires=2'))
    found = json.loads(tidewheel("validate", file, "--json").stdout)
    assert [(one["line"], one["column"], one["code"]) for one in found] == [(4, 35, "unknown_key")]


def test_the_examples_are_valid() -> None:
    done = tidewheel("validate", Path(__file__).parents[2] / "examples")
    assert done.returncode == 0, done.stdout
