"""Mistakes in Python files, each at its line and column in the Python source."""

from __future__ import annotations

from pathlib import Path

from tests.authoring.conftest import Expect


def test_keys_and_values_are_checked_where_they_stand(expect: Expect) -> None:
    found = expect(
        """
@task(§retires=2)
def extract(day: str, limit: int = 10): ...

with dag(
    §"Daily",
    schedule={"cron": §"0 6 * *", §"ende": "2026"},
    inputs={"day": {"type": "date", "default": §"x"}},
):
    extract(day=inputs.day)
    shell(
        §"ä", §"echo ${{ inputs.day }}", needs=["extract", §"nosuch"],
        timeout=§30, env={"A": §inputs.nope, "B": "ok"},
    )
""",
        "unknown_key",
        "wrong_type",
        "bad_cron",
        "unknown_key",
        "bad_default",
        "wrong_type",
        "expression_not_allowed",
        "unknown_task",
        "bad_duration",
        "unknown_name",
    )
    assert found[0].message.endswith("did you mean 'retries'?")


def test_arguments_are_checked_against_the_function(expect: Expect) -> None:
    found = expect(
        """
@task
def f(day, limit=1, *, context): ...

@task
def g(*days): ...

with dag("d"):
    f(§dya=1)
    §f.override(id="b")()
    §f.override(id="c")(1, 2, 3)
    §g(1)
    f.override(id="e")(1, limit=§{1, 2})
    f.override(id="fine")("x", 3)
""",
        *["bad_arguments"] * 4,
        "wrong_type",
    )
    assert found[0].message == "f() has no parameter 'dya'; did you mean 'day'?"
    assert "missing a required argument: 'day'" in found[1].message


def test_what_a_worker_could_not_import_is_refused(expect: Expect) -> None:
    found = expect(
        """
import functools, operator

def outer():
    @task
    def inner(): ...
    return inner

@task
def twice(): ...
first = twice

@task
def twice(): ...

nested, nameless = outer(), task(lambda: 1)
with dag("d"):
    §nested()
    §nameless()
    §first.override(id="first")()
    §task(functools.partial(print, "x")).override(id="partial")()
    twice()
""",
        *["not_importable"] * 4,
    )
    assert "'inner' is made within another function" in found[0].message
    assert "a lambda has no name" in found[1].message
    assert "flow:twice is not this function" in found[2].message


def test_tasks_of_other_dags_and_circles(expect: Expect) -> None:
    expect(
        """
with dag("one"):
    far = shell("far", "true")
with dag("two"):
    a, b = shell("a", "true"), shell("b", "true", env={"X": §far})
    §far >> a
    §a >> b >> a
with §dag("three"):
    pass
""",
        "unknown_task",
        "unknown_task",
        "cycle",
        "bad_value",
    )


def test_one_id_twice(expect: Expect) -> None:
    expect(
        """
@task
def load(path): ...

with dag("d"):
    load(1)
    §load(2)
""",
        "duplicate_id",
    )


def test_what_a_file_does_wrong_is_placed_at_its_line(expect: Expect) -> None:
    (found,) = expect(
        'with dag("d"):\n    a = shell("a", "true")\n    if §a.output.rows > 3:\n        pass\n', "python_error"
    )
    assert "known only when the workflow runs" in found.message
    (found,) = expect("§import nosuch_module\n", "python_error")
    assert "No module named 'nosuch_module'" in found.message
    (found,) = expect("def f(§:\n    pass\n", "syntax")
    (found,) = expect('§shell("a", "true")\n', "python_error")
    assert "within `with dag(...):`" in found.message
    (found,) = expect('with dag("a"):\n    §with dag("b"):\n        pass\n', "python_error")
    assert "end the block of 'a' first" in found.message
    (found,) = expect('with dag("a"):\n    a = shell("a", "true")\n    §a.rows\n', "python_error")
    assert "a field of its output is .output.rows" in found.message


def test_dags_may_be_made_by_functions_also_of_other_files(expect: Expect, tmp_path: Path) -> None:
    """Mistakes are placed in the file that is read, which leads to them."""
    (tmp_path / "making.py").write_text(
        "from tidewheel.authoring import dag, shell\n"
        "def make(name):\n    with dag(name):\n        shell('load', 'true', timout='5m')\n"
        "make('not_of_the_other_file')\n"
    )
    expect('from making import make\n§make("a")\n', "unknown_key")
