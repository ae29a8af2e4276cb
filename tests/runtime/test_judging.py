"""What a record is to a trigger: what expressions see of it, and the ids of its runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core.workflow import Records, Trigger
from tidewheel.definition.expressions import CelEvaluator
from tidewheel.log.interface import Record
from tidewheel.runtime.listener.judging import CannotJudge, happening, run_for, run_id
from tidewheel.wire.rules import check_run_id

EVALUATOR = CelEvaluator()
AT = 1_767_571_200_000


def record(value: bytes | None, key: bytes | None = b"k", headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record("t", 3, 7, key, value, headers, AT)


def asked(trigger: Records, one: Record) -> object:
    return run_for("d", Trigger(id="late", kafka=trigger), one, happening(one), EVALUATOR)


@pytest.mark.parametrize(
    ("value", "seen"),
    [(b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}), (b"42", 42), (b"plain", "plain"), (b"", ""), (None, None)],
)
def test_a_value_is_json_or_else_text(value: bytes | None, seen: object) -> None:
    assert happening(record(value)).names["value"] == seen


def test_what_is_no_text_is_not_there() -> None:
    found = happening(record(b"\xff", b"\xff", (("a", b"1"), ("b", b"\xff"))))
    assert found.names == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": "2026-01-05T00:00:00Z",
        "headers": {"a": "1"},
    }
    assert "key" in found.lacking and "value" in found.lacking


def test_a_record_whose_value_nobody_asks_for_is_a_run_whatever_it_holds() -> None:
    run = asked(Records(topic="t", filter="event.headers.kind == 'x'"), record(b"\xff", None, (("kind", b"x"),)))
    assert run is not None


def test_inputs_keep_their_types() -> None:
    run = run_for(
        "d",
        Trigger(id="late", kafka=Records(topic="t", inputs={"n": "${{ event.value.n }}", "s": "k=${{ event.key }}"})),
        record(b'{"n": [1, true]}'),
        happening(record(b'{"n": [1, true]}')),
        EVALUATOR,
    )
    assert run is not None and run.inputs == '{"n":[1,true],"s":"k=k"}'
    assert run.run_id == f"trigger__late:t.3.7.{AT}"
    assert run.origin == "t/3/7"


@pytest.mark.parametrize("key", ["${{ event.value }}", "${{ event.key }}"])
def test_a_key_that_is_nothing_is_refused(key: str) -> None:
    with pytest.raises(CannotJudge, match="dedupe_key is null"):
        asked(Records(topic="t", dedupe_key=key), record(None, None))


@given(st.text(), st.text())
def test_every_key_gives_a_legal_run_id_and_no_two_keys_the_same(one: str, other: str) -> None:
    check_run_id("run_id", run_id("a" * 200, one))
    check_run_id("run_id", run_id("late", one))
    assert (run_id("late", one) == run_id("late", other)) == (one == other)


def test_triggers_never_share_a_run_id() -> None:
    assert run_id("a", "b:c") != run_id("b", "c")
    assert run_id("late", "x" * 300) != run_id("early", "x" * 300)
