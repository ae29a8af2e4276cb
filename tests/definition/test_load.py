"""Files in, workflows or mistakes out."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewheel.definition.load import load_bytes, load_files, load_text
from tidewheel.definition.mistakes import Mistake
from tidewheel.definition.syntax import FILE_BYTES_MAX

FULL = (Path(__file__).parent / "full.yaml").read_text(encoding="utf-8")
HELLO = "id: {id}\ntasks: [{{id: t, run: x}}]\n"


def test_files_and_directories_load_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, dag in (("b.yaml", "b"), ("a.yml", "a"), ("sub/c.yaml", "c")):
        (tmp_path / name).write_text(HELLO.format(id=dag))
    (tmp_path / "notes.txt").write_text("no workflow")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "ci.yml").write_text("on: push")
    loaded = load_files([tmp_path])
    assert [(one.file, one.workflow.id if one.workflow else None) for one in loaded] == [
        (str(tmp_path / "a.yml"), "a"),
        (str(tmp_path / "b.yaml"), "b"),
        (str(tmp_path / "sub" / "c.yaml"), "c"),
    ]
    assert load_files([tmp_path / "b.yaml", str(tmp_path / "b.yaml")]) == (loaded[1],)


def test_of_two_files_with_one_id_the_second_is_refused_and_both_are_named(tmp_path: Path) -> None:
    first, second = tmp_path / "one.yaml", tmp_path / "two.yaml"
    first.write_text("# first\n" + HELLO.format(id="same"))
    second.write_text("\n\n" + HELLO.format(id="same"))
    one, two = load_files([first, second])
    assert one.workflow is not None
    assert two.workflow is None
    (mistake,) = two.mistakes
    assert (mistake.file, mistake.line, mistake.column, mistake.code) == (str(second), 3, 1, "duplicate_dag")
    assert mistake.message == f"{second} has the id 'same', which {first}:2 has already"


def test_a_file_with_mistakes_takes_no_id(tmp_path: Path) -> None:
    first, second = tmp_path / "one.yaml", tmp_path / "two.yaml"
    first.write_text(HELLO.format(id="same") + "shedule: x\n")
    second.write_text(HELLO.format(id="same"))
    one, two = load_files([first, second])
    assert (one.workflow, two.workflow is None) == (None, False)


def test_what_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    missing, too_large, nul = load_files([tmp_path / "missing.yaml", big, "a\0b.yaml"])
    assert [one.mistakes[0].code for one in (missing, too_large, nul)] == ["unreadable", "too_large", "unreadable"]
    assert "No such file" in missing.mistakes[0].message


def test_a_mistake_prints_as_compilers_do() -> None:
    assert str(Mistake("f.yaml", 3, 7, "cycle", "a -> b -> a")) == "f.yaml:3:7: a -> b -> a [cycle]"


def harmless(text: str | bytes) -> None:
    loaded = load_text(text, "f") if isinstance(text, str) else load_bytes(text, "f")
    assert (loaded.workflow is None) == bool(loaded.mistakes)
    assert list(loaded.mistakes) == sorted(loaded.mistakes)
    assert all(mistake.line >= 1 and mistake.column >= 1 and mistake.message for mistake in loaded.mistakes)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"\xff")
@example(b"\xef\xbb\xbf")
@example(b"a: !<tag:x> y")
def test_random_bytes_never_raise(data: bytes) -> None:
    harmless(data)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=120) | st.text(alphabet="id: tasks[]{}-?&*!|>'\"%@`#,\n\t <", max_size=120))
def test_random_text_never_raises(text: str) -> None:
    harmless(text)


PIECES = st.one_of(
    st.sampled_from("[]{}'\"#\t\n\0\u2028\ud800é*"),
    st.sampled_from(("&a ", "*a", "<<: *a", "!!int ", ": ", "- ", "? ", "|\n", ">-\n", "---\n", "%YAML 1.1\n")),
    st.sampled_from(("null", "010", "9" * 30, "1e999", ".nan", "${{", "}}", "${{ tasks.load }}", "${{ 1 + }}")),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(FULL)), st.integers(0, 12), PIECES), min_size=1, max_size=6))
def test_mutated_files_never_raise(mutations: list[tuple[int, int, str]]) -> None:
    text = FULL
    for position, removed, piece in mutations:
        text = text[:position] + piece + text[position + removed :]
    harmless(text)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_moved_lines_never_raise(data: st.DataObject) -> None:
    lines = FULL.splitlines(keepends=True)
    harmless("".join(data.draw(st.lists(st.sampled_from(lines), max_size=50))))
