"""Files of DAGs are executed where they can hurt nobody, and named as workers will import them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.authoring.conftest import HEAD
from tests.e2e.running import eventually
from tidewheel.authoring.files import load_source, module_name, names_dags, project_of
from tidewheel.definition.load import Mistake, load_text

ONE = 'with dag("one"):\n    shell("a", "true")\n'


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def only_mistake(path: Path, seconds: float = 30) -> Mistake:
    (loaded,) = load_source(path, path.parent, seconds=seconds).dags
    (mistake,) = loaded.mistakes
    return mistake


def test_a_file_defines_many_dags_and_may_print(tmp_path: Path) -> None:
    text = "import os\nprint('noise' * 100_000)\nos.write(1, b'{}')\n"
    text += 'for n in range(3):\n    with dag(f"d{n}"):\n        shell("a", "true")\n'
    source = load_source(write(tmp_path / "many.py", HEAD + text), tmp_path)
    assert [one.workflow.id for one in source.dags if one.workflow] == ["d0", "d1", "d2"]
    assert {one.line for one in source.dags} == {6}
    for one in source.dags:
        assert load_text(one.source, "f").version == one.version


def test_a_file_that_never_ends_is_ended(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = f"""{HEAD}
import subprocess, time
print("so far", flush=True)
open({str(child)!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid) + ".")
while True:
    time.sleep(1)
"""
    file = write(tmp_path / "slow.py", text)
    for seconds in (1, 4, 16, 64):
        mistake = only_mistake(file, seconds)
        assert f"still being executed after {seconds} s" in mistake.message
        # On a busy machine it may not have come so far.
        if child.exists() and (started := child.read_text()).endswith("."):
            break
    assert mistake.message.endswith("its last words: so far")
    eventually(lambda: _state(int(started.rstrip("."))) in ("", "Z"), what="the end of what it started")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os, sys; print('last words', flush=True); os._exit(3)", "(exit code 3); its last words: last words"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "(exit code -9)"),
        ("raise SystemExit('not today')", "SystemExit: not today"),
        ("def f(): f()\nf()", "RecursionError"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); 1/0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_breaks_is_a_mistake(tmp_path: Path, text: str, said: str) -> None:
    assert said in only_mistake(write(tmp_path / "broken.py", f"{HEAD}{text}\n")).message


def test_a_file_that_names_no_dags_is_not_executed(tmp_path: Path) -> None:
    file = write(tmp_path / "other.py", "open('executed', 'w')\n")
    assert not names_dags(file)
    assert load_source(file, tmp_path).dags == ()
    assert not (tmp_path / "executed").exists()
    assert only_mistake(tmp_path / "gone.py").code == "unreadable"


def test_functions_are_named_as_workers_import_them(tmp_path: Path) -> None:
    write(tmp_path / "shop" / "__init__.py", "")
    write(tmp_path / "shop" / "tasks.py", f"{HEAD}@task\ndef load(): ...\n")
    file = write(
        tmp_path / "shop" / "flow.py",
        f"{HEAD}from .tasks import load\n@task\ndef own(): ...\nwith dag('d'):\n    own()\n    load()\n",
    )
    assert project_of(file) == tmp_path
    source = load_source(file, tmp_path)
    (loaded,) = source.dags
    assert loaded.workflow is not None
    assert [task.action.callable for task in loaded.workflow.tasks] == ["shop.flow:own", "shop.tasks:load"]  # type: ignore[union-attr]
    assert {file.name for file in source.files} == {"flow.py", "tasks.py", "__init__.py"}
    assert "from where workers would import it" in load_source(file, tmp_path / "elsewhere").dags[0].mistakes[0].message
    assert "cannot be imported" in only_mistake(write(tmp_path / "not-a-name.py", HEAD + ONE)).message


def test_in_a_worker_a_task_is_its_function(tmp_path: Path) -> None:
    """And its file is light to import: nothing that only compiling needs."""
    text = f"{HEAD}@task(retries=3)\ndef double(n, context=None):\n    return 2 * n\nwith dag('d'):\n    double(1)\n"
    write(tmp_path / "flow.py", text)
    code = (
        "import sys, flow; from tidewheel.task.call import takes_context; "
        "print(flow.double(21), takes_context(flow.double), {'cel_expr_python', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *map(os.path.abspath, filter(None, sys.path))]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "42 True set()\n"


def test_a_directory_whose_name_is_no_module_is_told_as_the_project_to_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"name its directory, {tmp_path}/my-flows, instead of {tmp_path}$"):
        module_name(tmp_path / "my-flows" / "flow.py", tmp_path)
    with pytest.raises(ValueError, match=r"underscores only$"):
        module_name(tmp_path / "my-flow.py", tmp_path)
