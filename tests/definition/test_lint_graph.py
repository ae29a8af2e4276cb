"""Tasks as a graph."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tidewheel.definition.load import Loaded, load_text

Expect = Callable[..., Loaded]
Message = Callable[..., str]


def dag(*tasks: str) -> str:
    return "id: a\ntasks:\n" + "".join(f"  - {{run: x, {task}}}\n" for task in tasks)


@pytest.mark.parametrize(
    ("marked", "code", "words"),
    [
        (dag("id: load", "id: b, needs: [§laod]"), "unknown_task", "there is no task 'laod'; did you mean 'load'?"),
        (dag("id: load", "id: b, needs: §laod"), "unknown_task", "did you mean 'load'?"),
        (dag("id: b, needs: [§b]"), "self_need", "needs itself"),
        (dag("id: b", "id: c, needs: [b, §b]"), "duplicate_need", "named twice"),
        (dag("id: b", "id: c", "id: §b"), "duplicate_id", "the task id 'b' is already used on line 3"),
        (dag("id: b, needs: c", "id: c, needs: [§b]"), "cycle", "in a circle: b -> c -> b"),
        (dag("id: d, needs: b", "id: b, needs: e", "id: c, needs: §b", "id: e, needs: c"), "cycle", "b -> e -> c -> b"),
    ],
)
def test_ids_and_needs(message: Message, marked: str, code: str, words: str) -> None:
    assert words in message(marked, code)


def test_each_cycle_is_named(expect: Expect) -> None:
    marked = dag("id: b, needs: c", "id: c, needs: [§b]", "id: d, needs: e", "id: e, needs: [§d]", "id: f, needs: b")
    loaded = expect(marked, "cycle", "cycle")
    assert [mistake.message.split(": ")[1] for mistake in loaded.mistakes] == ["b -> c -> b", "d -> e -> d"]


def test_an_id_with_a_mistake_makes_no_second_one_where_it_is_needed(expect: Expect) -> None:
    expect(dag("id: §Load", "id: b, needs: [Load]"), "wrong_type")


def a_row_of(length: int) -> str:
    tasks = [f"id: t{n}, needs: [t{n - 1}]" if n else "id: t0" for n in range(length)]
    last = f"{{run: x, id: t{length - 1},"
    return dag(*tasks).replace(last, f'{{env: {{A: "${{{{ tasks.t0.output }}}}"}}, run: x, id: t{length - 1},')


def load_cpu_s(text: str) -> float:
    begun = time.process_time()
    assert load_text(text, "f").workflow is not None
    return time.process_time() - begun


def test_ten_thousand_tasks_in_a_row_are_checked_in_linear_time() -> None:
    text = a_row_of(10_000)
    # Four times the tasks: four times the work if it is linear, sixteen times if it is not.
    assert load_cpu_s(text) < 9 * load_cpu_s(a_row_of(2_500))
    closed = text.replace("id: t0}", "id: t0, needs: [t9999]}")
    (mistake,) = load_text(closed, "f").mistakes
    assert mistake.message.endswith("-> … -> t0")
