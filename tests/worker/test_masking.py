"""Secrets in text: every form, at every cut."""

from __future__ import annotations

import base64
import html
import json
import shlex
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.worker.masking import Masker, StreamMasker

SECRET = 'p@ss "word"/\\ö+'


def test_common_forms_are_masked() -> None:
    masker = Masker([SECRET])
    for form in (
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        html.escape(SECRET),
    ):
        assert masker.mask(f"a {form} z").replace('"', "") == "a *** z", form


@pytest.mark.parametrize("secret", [SECRET, "it's \\ a <b> & ö"])
def test_a_quoted_value_is_masked(secret: str) -> None:
    for form in (repr(secret), ascii(secret), shlex.quote(secret), "'" + secret.replace("'", "'\\''") + "'"):
        assert Masker([secret]).mask(form).strip("'\"") == "***", form


def test_base64_is_masked_wherever_the_value_stands() -> None:
    masker = Masker([SECRET])
    for before in ("", "u", "us", "user:"):
        for after in ("", "!", "!!"):
            encoded = base64.b64encode(f"{before}{SECRET}{after}".encode()).decode()
            masked = masker.mask(encoded)
            assert "***" in masked
            assert base64.b64encode(SECRET.encode()).decode()[4:12] not in masked


def test_lines_of_a_long_secret_are_masked_one_by_one() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    assert Masker([key]).mask("got hkiG9w0BAQEFAASC.") == "got ***."


def test_a_secret_that_begins_another_does_not_shield_it() -> None:
    masker = Masker(["secret", "secret-and-more"])
    assert masker.mask("secret-and-more secret") == "*** ***"


def test_without_secrets_text_passes_at_once() -> None:
    stream = StreamMasker(Masker())
    assert stream.feed("anything") == "anything"
    assert stream.finish() == ""


def test_a_secret_learnt_later_is_masked_from_then_on() -> None:
    masker = Masker(["first-one"])
    stream = StreamMasker(masker)
    stream.feed("x")
    masker.add("second-one")
    assert stream.feed("second-one.") == "***."


SECRETS = ["hunter22", "unter", "2200", "r22h"]


@given(
    st.lists(st.sampled_from(["hunter22", "hunt", "er22", "2200", "r22", "h", "u", " ", "\n", "unter"]), max_size=12),
    st.data(),
)
def test_pieces_are_masked_as_the_whole(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    stream = StreamMasker(Masker(SECRETS))
    shown, rest = "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    shown += stream.finish()
    assert shown == Masker(SECRETS).mask(text)
    assert not any(secret in shown for secret in SECRETS)


@given(st.text(min_size=4, max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_any_value_is_masked(secret: str, before: str, after: str) -> None:
    masked = Masker([secret]).mask(before + secret + after)
    assert "***" in masked
    assert secret not in masked or secret in before + after or "*" in secret


@pytest.mark.parametrize("escape", ["\\/", "\\u002f", "\\u002F"])
def test_json_is_masked_however_its_writer_escapes(escape: str) -> None:
    masker = Masker(["open/sesame \U0001f511 now"])
    text = '{"a": "\\n x openESCsesame \\ud83d\\udd11 \\u006eow \\\\", "open/sesame \U0001f511 now": 1.50}'
    masked = masker.mask_json(text.replace("ESC", escape))
    assert masked == '{"a": "\\n x *** \\\\", "***": 1.50}'
    assert json.loads(masked) == {"a": "\n x *** \\", "***": 1.5}


@pytest.mark.parametrize("text", ['{"a":"\\u00e9\\/"}', "null", '"open"'])
def test_json_without_a_secret_stays_as_it_is_written(text: str) -> None:
    assert Masker(["open sesame"]).mask_json(text) == text
    assert Masker().mask_json(text) == text


def test_a_long_secret_does_not_slow_down_small_pieces() -> None:
    stream = StreamMasker(Masker(["".join(f"{number:x}" for number in range(4_000))]))
    begun = time.process_time()
    for _ in range(200):
        stream.feed("an ordinary line of what a program has to say 0123456789abc\n")
    assert time.process_time() - begun < 1
