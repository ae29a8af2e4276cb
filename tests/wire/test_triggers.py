"""Trigger records: what anybody may send, which run it means, and what is answered to the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.core.commands import CancelRun, StartRun
from tidewheel.core.rules import INPUTS_BYTES_MAX
from tidewheel.wire.codec import DecodeError, encode
from tidewheel.wire.messages import TriggerRun
from tidewheel.wire.rules import INPUT_BYTES_MAX
from tidewheel.wire.triggers import DEPTH_MAX, decode_trigger


def start(
    value: bytes | str | dict[str, Any], topic: str = "triggers", partition: int = 3, offset: int = 17
) -> StartRun:
    if isinstance(value, dict):
        value = json.dumps(value)
    data = value.encode() if isinstance(value, str) else value
    return decode_trigger(data, topic=topic, partition=partition, offset=offset, timestamp=1_767_571_200_000)


def refused(value: bytes | str | dict[str, Any], says: str, code: str = "invalid") -> None:
    with pytest.raises(DecodeError, match=says) as caught:
        start(value)
    assert caught.value.code == code


def test_the_least_that_starts_a_run() -> None:
    assert start('{"dag":"orders"}') == StartRun(
        dag="orders", run_id="kafka__triggers.3.17.1767571200000", kind="kafka", actor="kafka:triggers", inputs="{}"
    )


def test_all_that_may_be_said() -> None:
    asked = {
        "dag": "orders",
        "run_id": "r 1",
        "id": "x",
        "inputs": {"a": [1, 2.5, None], "ü": {}},
    }
    assert start(asked) == StartRun(
        dag="orders",
        run_id="r 1",
        kind="kafka",
        actor="kafka:triggers",
        inputs='{"a":[1,2.5,null],"ü":{}}',
    )


@pytest.mark.parametrize("text", ['\n\t {"dag":"orders"} \r\n', '\ufeff{"dag":"orders"}'])
def test_space_around_and_a_byte_order_mark_are_no_matter(text: str) -> None:
    assert start(text).dag == "orders"


def test_null_is_as_good_as_nothing() -> None:
    nothing = {"dag": "orders", "run_id": None, "id": None, "inputs": None}
    assert start(nothing) == start({"dag": "orders"})


def test_avro_says_the_same() -> None:
    trigger = TriggerRun(dag="orders", id="x1", inputs='{"a": [1, 2]}')
    asked = {"dag": "orders", "id": "x1", "inputs": {"a": [1, 2]}}
    assert start(encode(trigger)) == start(asked)
    assert start(encode(TriggerRun(dag="orders"))) == start({"dag": "orders"})


# --- which run ---------------------------------------------------------------------------------------------------


def test_an_id_is_the_same_run_wherever_it_lies() -> None:
    first, again = start({"dag": "d", "id": "x"}, offset=1), start({"dag": "d", "id": "x"}, partition=0, offset=99)
    assert first.run_id == again.run_id == "kafka__x"


def test_a_record_without_an_id_is_the_same_run_only_where_it_lies() -> None:
    runs = [start({"dag": "d"}, partition=p, offset=o).run_id for p, o in ((1, 23), (12, 3), (1, 2), (1, 23))]
    assert runs[0] == runs[3]
    assert len(set(runs)) == 3


def test_c036_two_trigger_topics_with_the_same_offsets_are_two_runs() -> None:
    one, two = start({"dag": "d"}, topic="sales.triggers"), start({"dag": "d"}, topic="stock.triggers")
    assert one.run_id == "kafka__sales.triggers.3.17.1767571200000"
    assert two.run_id == "kafka__stock.triggers.3.17.1767571200000"


def test_an_id_cannot_take_the_run_of_a_record_without_one() -> None:
    refused({"dag": "d", "id": "triggers.3.18.5"}, "id: 'triggers.3.18.5' is how records without an id are named")
    refused({"dag": "d", "id": "triggers.3.18"}, "id: 'triggers.3.18' is how records without an id are named")
    assert start({"dag": "d", "id": "triggers.3"}).run_id == "kafka__triggers.3"
    assert start({"dag": "d", "id": "other.3.18"}).run_id == "kafka__other.3.18"


def test_a_topic_too_long_for_a_run_id_is_said_so() -> None:
    with pytest.raises(DecodeError, match="made of topic, partition, offset and time has 275 characters"):
        start({"dag": "d"}, topic="t" * 249)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        (b"", "foreign", "a JSON object or an Avro TriggerRun"),
        (b"  \n", "foreign", "a JSON object or an Avro TriggerRun"),
        (b"[]", "foreign", "a JSON object or"),
        (b'"orders"', "foreign", "a JSON object or"),
        (b"orders", "foreign", "a JSON object or"),
        (b"\0\0\0\0\x07\x0corders", "foreign", "Confluent's framing is not read"),
        (b'{"dag":"orders"', "malformed", "the record is no JSON: .*char 15"),
        (b'{"dag":"orders"} {}', "malformed", "the record is no JSON: Extra data"),
        (b'{"dag":"orders",}', "malformed", "the record is no JSON"),
        (b"{'dag':'orders'}", "malformed", "the record is no JSON"),
        (b'{"dag":"ord\xffrs"}', "malformed", "neither Avro nor JSON in UTF-8"),
        ('{"dag":"orders"}'.encode("utf-16"), "malformed", "neither Avro nor JSON in UTF-8"),
        (b'{"dag":"or\nders"}', "malformed", "control character"),
    ],
)
def test_what_is_no_trigger_is_refused(value: bytes, code: str, says: str) -> None:
    refused(value, says, code)


def test_a_record_without_value_is_refused() -> None:
    refused(None, "no value", "foreign")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"run_id":"r"}', "dag: missing; give the id of the DAG"),
        ('{"dag":null}', "dag: must be the id of the DAG .text., not null"),
        ('{"dag":7}', "dag: must be the id of the DAG .text., not a number"),
        ('{"dag":"Orders"}', "dag 'Orders' is no id: an id is a small letter"),
        ('{"dag":"d","runid":"r"}', "key 'runid' is not known; allowed are dag, run_id, id, inputs"),
        ('{"dag":"d","run_id":5}', "run_id: must be the id of the run .text., not a number"),
        ('{"dag":"d","run_id":""}', "run_id has 0 characters, 1 to 250 are allowed"),
        ('{"dag":"d","run_id":"a\\nb"}', "run_id .* cannot be printed"),
        ('{"dag":"d","id":true}', "id: must be your own id of this request .text., not true or false"),
        ('{"dag":"d","id":""}', "id has 0 characters"),
        ('{"dag":"d","id":"\\ud800"}', "id .* cannot be printed"),
        ('{"dag":"d","inputs":[]}', "inputs: must be an object, not a list"),
        ('{"dag":"d","inputs":"{}"}', "inputs: must be an object, not a text"),
        ('{"dag":"d","dag":"e"}', "the record has the key 'dag' twice"),
        ('{"dag":"d","inputs":{"a":{"b":1,"c":2,"b":1}}}', "the record has the key 'b' twice"),
        ('{"dag":"d","inputs":{"a":NaN}}', "the record has NaN, which is no JSON"),
        ('{"dag":"d","inputs":{"a":-Infinity}}', "the record has -Infinity"),
        ('{"dag":"d","inputs":{"a":1e999}}', "the record has the number 1e999, which is too large"),
        ('{"dag":"d","inputs":{"a":"\\u0000"}}', "inputs: a text has the character U.0000"),
        ('{"dag":"d","inputs":{"a":[{"\\u0000":1}]}}', "inputs: a text has the character U.0000"),
        ('{"dag":"d","inputs":{"a":"\\udc00"}}', "inputs: a text has half of a surrogate pair"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_key(text: str, says: str) -> None:
    refused(text, says)


def test_an_id_leaves_room_for_its_prefix() -> None:
    assert len(start({"dag": "d", "id": "x" * 243}).run_id) == 250
    refused({"dag": "d", "id": "x" * 244}, "id .with kafka__ in front. has 251 characters")


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 900, 100_000])
def test_inputs_nested_too_deep_are_refused(depth: int) -> None:
    text = '{"dag":"d","inputs":{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}}"
    refused(text, f"nested deeper than {DEPTH_MAX} levels")


def test_inputs_nested_as_deep_as_allowed_are_taken() -> None:
    nested = '{"a":' + "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1) + "}"
    assert start('{"dag":"d","inputs":' + nested + "}").inputs == nested


def test_sizes_are_bounded() -> None:
    refused({"dag": "d", "inputs": {"a": "x" * INPUTS_BYTES_MAX}}, f"inputs: .* at most {INPUTS_BYTES_MAX} are kept")
    refused(b'{"dag":"d"}' + b" " * INPUT_BYTES_MAX, f"at most {INPUT_BYTES_MAX} are allowed", "oversized")
    grown = '{"dag":"d","inputs":{"a":[' + ",".join(["1e9"] * 60_000) + "]}}"  # compact here means 12 characters each
    refused(grown, "inputs: 7[0-9]+ bytes")


def test_numbers_too_long_to_read_are_refused() -> None:
    refused('{"dag":"d","inputs":{"a":' + "9" * 5000 + "}}", "the record is no JSON: Exceeds the limit", "malformed")


@pytest.mark.parametrize("inputs", ["", "[]", "{", '{"a":1,"a":2}', '{"a":NaN}', "null"])
def test_avro_inputs_are_held_to_the_same_rules(inputs: str) -> None:
    with pytest.raises(DecodeError, match="inputs: "):
        start(encode(TriggerRun(dag="d", inputs=inputs)))


def test_avro_of_another_kind_is_no_trigger() -> None:
    refused(encode(CancelRun(dag="d", run_id="r")), "a CancelRun is no trigger; send a TriggerRun", "unexpected")
    refused(encode(TriggerRun(dag="d"))[:-1], "missing at the end", "truncated")
    refused(encode(TriggerRun(dag="d", run_id="")), "run_id has 0 characters")


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(TEXTS, JSON, max_size=4))
def test_inputs_arrive_as_they_were_sent(inputs: dict[str, Any]) -> None:
    assert json.loads(start({"dag": "d", "inputs": inputs}).inputs) == inputs


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.dictionaries(TEXTS, JSON).map(lambda document: json.dumps(document).encode())
)
def test_anything_gives_a_run_or_a_reason(data: bytes) -> None:
    try:
        start(data)
    except DecodeError as error:
        assert error.code and len(error.reason) > 10
