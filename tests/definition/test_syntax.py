"""YAML's traps: each gives an error at its place, or the plain meaning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidewheel.core.workflow import Python
from tidewheel.definition.load import Loaded, load_bytes, load_text
from tidewheel.definition.syntax import FILE_BYTES_MAX

Expect = Callable[..., Loaded]
Message = Callable[..., str]

HEAD = "id: a\n"
TASKS = "tasks: [{id: t, run: x}]\n"


def arguments(written: str) -> object:
    """What a YAML value becomes as an argument of a Python task."""
    loaded = load_text(f"id: a\ntasks: [{{id: t, python: 'm:f', with: {{v: {written}}}}}]\n", "dag.yaml")
    assert loaded.workflow is not None, loaded.mistakes
    action = loaded.workflow.tasks[0].action
    assert isinstance(action, Python)
    return action.with_["v"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("3", 3),
        ("-3", -3),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("'010'", "010"),
        ("[no, 2]", ["no", 2]),
        ("{on: off}", {"on": "off"}),
        ("'<<'", "<<"),
    ],
)
def test_values_mean_what_yaml_1_2_says(written: str, value: object) -> None:
    result = arguments(written)
    assert result == value
    assert type(result) is type(value)


def test_countries_and_needs_that_look_like_booleans_are_texts(expect: Expect) -> None:
    """Field report C096."""
    loaded = expect(
        "id: a\ntags: [de, no, se]\ntasks:\n  - {id: on, run: x}\n  - {id: off, run: x, needs: [on]}\n"
        "  - {id: t, python: 'm:f', needs: off, with: {countries: [no, dk]}}\n"
    )
    assert loaded.workflow is not None
    assert loaded.workflow.tags == ("de", "no", "se")
    assert [task.needs for task in loaded.workflow.tasks] == [(), ("on",), ("off",)]
    assert loaded.workflow.tasks[2].action == Python(callable="m:f", with_={"countries": ["no", "dk"]})


def test_a_number_with_a_leading_zero_is_refused_where_a_number_could_be_meant(message: Message) -> None:
    text = message("id: a\ntasks: [{id: t, python: 'm:f', with: {zip: §010}}]\n", "ambiguous_value")
    assert text == "010 means different numbers to different readers: write 10, or quote it as a text"


def test_a_number_with_a_leading_zero_is_a_text_where_a_text_is_wanted(expect: Expect) -> None:
    loaded = expect("id: a\nenv: {ZIP: 01234, PORT: 8080, ON: yes, EMPTY: , VERSION: 1.10}\n" + TASKS)
    assert loaded.workflow is not None
    assert loaded.workflow.env == {"ZIP": "01234", "PORT": "8080", "ON": "yes", "EMPTY": "", "VERSION": "1.10"}


@pytest.mark.parametrize("written", [".inf", "-.INF", ".nan", "1e999", "9223372036854775808"])
def test_numbers_that_json_or_expressions_cannot_hold_are_refused(message: Message, written: str) -> None:
    message(f"id: a\ntasks: [{{id: t, python: 'm:f', with: {{v: §{written}}}}}]\n", "ambiguous_value")


@pytest.mark.parametrize(
    ("line", "column", "text"),
    [
        ("schedule: */10 * * * *", 11, "*/10 * * * *"),
        ("schedule: * * * * *  # always", 11, "* * * * *"),
        ("schedule: {cron: */5 * * * *}", 18, "*/5 * * * *"),
        ("schedule: {cron: [0 1 * * *, */5 * * * *]}", 30, "*/5 * * * *"),
        ("schedule: */5,7 * * * *", 11, "*/5,7 * * * *"),
        ("schedule:\n  cron: */5 3 * * *", 9, "*/5 3 * * *"),
        ("schedule:\n  cron:\n    - */5 * * * 1-5", 7, "*/5 * * * 1-5"),
    ],
)
def test_an_unquoted_schedule_is_named_as_such(line: str, column: int, text: str | None) -> None:
    """Field report C098: the place, what to do, and the mistakes after it too."""
    loaded = load_text(f"{HEAD}{line}\ntsaks: 1\n{TASKS}", "dag.yaml")
    first, *rest = loaded.mistakes
    assert (first.line, first.column) == (line.count("\n") + 2, column)
    if text is not None:
        assert first.message == f'quote the schedule: "{text}" (without quotes, YAML takes the * for an alias)'
        assert [mistake.code for mistake in rest] == ["unknown_key"]


def test_an_unquoted_star_elsewhere_is_no_schedule(message: Message) -> None:
    assert message("id: a\nowner: §*/x\n" + TASKS, "unquoted_star").startswith('quote the text: "*/x"')


def test_a_key_twice_names_both_lines(message: Message) -> None:
    """Field report P05."""
    assert (
        message("id: a\nowner: x\n" + TASKS + "§owner: y\n", "duplicate_key")
        == "the key 'owner' is already on line 2; keep one"
    )


def test_a_key_twice_is_found_at_every_level(expect: Expect) -> None:
    expect(
        "id: a\nenv: {A: 1, §A: 2}\ntasks:\n  - id: t\n    python: m:f\n    with: {v: [{k: 1, §k: 1}]}\n    §id: t\n",
        "duplicate_key",
        "duplicate_key",
        "duplicate_key",
    )


@pytest.mark.parametrize(
    "marked", ["§\tid: a\n", "id: a\ntasks:\n§\t- id: t\n", "id: a\ntasks:\n  - id: t\n §\t  run: x\n"]
)
def test_tabs_are_named(message: Message, marked: str) -> None:
    assert message(marked, "syntax") == "a tab: YAML is indented with spaces"


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        ("§", "empty", "the file is empty"),
        ("§# only a comment\n", "empty", "the file is empty"),
        ("§---\n", "empty", "the file is empty"),
        ("§- a\n", "wrong_type", "expected a workflow as a mapping of keys, got a list"),
        ("§just text\n", "wrong_type", "got 'just text'"),
        (HEAD + TASKS + "§---\nid: b\n", "multiple_documents", "one workflow a file"),
        (HEAD + "owner: §@ann\n" + TASKS, "syntax", "put quotes around it"),
        (HEAD + "owner: §!!python/object:os.system x\n" + TASKS, "tag", "tags have no meaning"),
        (HEAD + "description: load§: it\n" + TASKS, "syntax", "put quotes around it"),
        (
            HEAD + "env: {A: $§{{ run.id }}}\n" + TASKS,
            "syntax",
            "put quotes around the value that holds the expression",
        ),
        (HEAD + "owner: a§\0b\n" + TASKS, "syntax", "U+0000 is not allowed"),
        (HEAD + "owner: §*team\n" + TASKS, "unknown_anchor", "no anchor '&team' is above it"),
        (HEAD + "env: {§[a]: b}\n" + TASKS, "wrong_type", "a key must be a plain name"),
        (HEAD + "<<: §text\n" + TASKS, "wrong_type", "'<<' merges a mapping"),
    ],
)
def test_what_is_no_workflow_is_said_where(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(marked, code)


def test_anchors_merge_keys_and_own_keys_work(expect: Expect) -> None:
    loaded = expect(
        "id: a\nx-retry: &retry {max: 3, delay: 5s}\nx-base: &base {pool: warehouse, timeout: 5m}\n"
        "tasks:\n  - {<<: *base, id: t, run: x, retry: *retry, timeout: 1h, x-note: mine}\n"
        "  - {<<: [*base, {pool: other, description: d}], id: u, run: x}\n"
    )
    assert loaded.workflow is not None
    first, second = loaded.workflow.tasks
    assert (first.pool, first.timeout_ms, first.retry.max) == ("warehouse", 3_600_000, 3)
    assert (second.pool, second.timeout_ms, second.description) == ("warehouse", 300_000, "d")


def test_a_mistake_in_an_anchored_value_is_told_once(expect: Expect) -> None:
    expect(
        "id: a\nx-t: &t 30\ntasks:\n  - {id: t, run: x, timeout: *t}\n  - {id: u, run: x, timeout: *t}\n".replace(
            "&t 30", "§&t 30"
        ),
        "bad_duration",
    )


def test_an_alias_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    (mistake,) = load_text("\n".join(lines), "dag.yaml").mistakes
    assert (mistake.code, mistake.line) == ("too_large", 6)


def test_an_alias_of_itself_is_refused(expect: Expect) -> None:
    expect("id: a\nx-loop: &loop {again: §*loop}\n" + TASKS, "unknown_anchor")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused(opening: str) -> None:
    (mistake,) = load_text(opening * 100_000, "dag.yaml").mistakes
    assert mistake.code in ("too_deep", "syntax")


def test_nesting_by_aliases_counts_too() -> None:
    lines = ["a0: &a0 [[[[[[[[x]]]]]]]]"] + [f"a{n}: &a{n} [[[[[[[[*a{n - 1}]]]]]]]]" for n in range(1, 10)]
    (mistake,) = load_text("\n".join(lines), "dag.yaml").mistakes
    assert mistake.code == "too_deep"


def test_a_file_over_the_bound_is_refused(expect: Expect) -> None:
    comment = "# " + "x" * 100 + "\n"
    big = comment * (FILE_BYTES_MAX // len(comment) + 1)
    for mistakes in (load_text(big, "f").mistakes, load_bytes(big.encode(), "f").mistakes):
        assert [mistake.code for mistake in mistakes] == ["too_large"]
    small = big[: FILE_BYTES_MAX - 200]
    assert load_text(small[: small.rfind("\n") + 1] + HEAD + TASKS, "f").workflow is not None


def test_bytes_that_are_no_utf_8_are_named_with_their_place() -> None:
    (mistake,) = load_bytes("id: a\nowner: Zoë\n".encode("latin-1"), "f").mistakes
    assert (mistake.line, mistake.column, mistake.code) == (2, 10, "not_utf8")
    assert "0xeb" in mistake.message
    (mistake,) = load_bytes("id: a\n".encode("utf-16"), "f").mistakes
    assert mistake.code == "not_utf8"


def test_a_byte_order_mark_and_windows_line_ends_are_fine() -> None:
    loaded = load_bytes(("\ufeff" + HEAD + TASKS).replace("\n", "\r\n").encode(), "f")
    assert loaded.workflow is not None


def test_columns_count_characters(expect: Expect) -> None:
    expect("id: a\ndescription: é😀\ntasks: [{id: t, run: 'é😀', §nees: x}]\n", "unknown_key")


def test_too_many_mistakes_are_cut_off() -> None:
    assert len(load_text("".join(f"k{n}: 1\n" for n in range(5_000)), "f").mistakes) == 1_000
