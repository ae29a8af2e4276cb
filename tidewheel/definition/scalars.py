"""What a plain scalar means by YAML 1.2's core schema, and the spellings that YAML 1.1 reads otherwise."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

#: 64 bits: what expressions count in.
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
#: Longer waits are mistakes, and this keeps every sum of instants far from overflow.
DURATION_MAX_MS: Final = 3_650 * 86_400_000

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
#: YAML 1.1 reads these as booleans.
OLD_TRUTH: Final = frozenset({"yes", "no", "on", "off", "y", "n"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OCTAL: Final = re.compile(r"0o[0-7]+", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9_]+", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2})?([Zz]|[+-][0-9]{2}:[0-9]{2})?", re.ASCII
)
_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION: Final = re.compile(
    r"(?:(?P<d>[0-9]{1,9})d)?(?:(?P<h>[0-9]{1,9})h)?(?:(?P<m>[0-9]{1,9})m)?(?:(?P<s>[0-9]{1,9})s)?(?:(?P<ms>[0-9]{1,9})ms)?",
    re.ASCII,
)


class ScalarMistake(ValueError):
    """The text has no meaning here; the message says what to write."""


def is_null(text: str) -> bool:
    """Whether a plain scalar is null."""
    return text in _NULL


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar. ``no``, ``on``, ``1:30`` are texts. Raises ``ScalarMistake``."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _LEADING_ZERO.fullmatch(text):
        digits = text.lstrip("+-0_") or "0"
        raise ScalarMistake(
            f"{text} means different numbers to different readers: write {digits}, or quote it as a text"
        )
    if _INTEGER.fullmatch(text) or _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ScalarMistake(f"{text[:40]} is too large for a number")
        return value
    if _NOT_FINITE.fullmatch(text):
        raise ScalarMistake(f"{text} has no place in JSON: leave it out, or quote it as a text")
    return text


def _integer(text: str) -> int:
    value = int(text, 0) if text[:2] in ("0o", "0x") else int(text) if len(text) <= 20 else INTEGER_MAX + 1
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ScalarMistake(f"{text[:40]} does not fit into 64 bits: quote it as a text")
    return value


def duration_ms(text: str) -> int:
    """``10s``, ``5m``, ``2h``, ``1d``, ``1h30m``, ``250ms`` in milliseconds. Raises ``ScalarMistake``."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        hint = f": write {text}s for seconds or {text}m for minutes" if text.isascii() and text.isdigit() else ""
        raise ScalarMistake(f"expected a duration such as 30s, 5m, 2h, 1d or 1h30m, got {text[:60]!r}{hint}")
    total = sum(int(match[unit]) * factor for unit, factor in _UNITS_MS.items() if match[unit])
    if total > DURATION_MAX_MS:
        raise ScalarMistake(f"{text} is longer than ten years")
    return total


def moment(text: str) -> tuple[datetime, bool]:
    """``2026-01-31``, or with a time of day and perhaps an offset; and whether it is a whole day. Raises
    ``ScalarMistake``."""
    if _DATE.fullmatch(text) or _MOMENT.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper()), len(text) == 10
        except ValueError as error:
            raise ScalarMistake(f"{text} is no date: {error}") from error
    raise ScalarMistake(f"expected a date such as 2026-01-31 or a time such as 2026-01-31T06:00, got {text[:60]!r}")


def moment_ms(text: str, zone: tzinfo, *, last: bool = False) -> int:
    """``moment`` in milliseconds since the epoch, on the clock of ``zone`` unless it has an offset of its own.

    Of a whole day it is the first instant, or the ``last`` one.
    """
    at, whole_day = moment(text)
    if last and whole_day:
        at += timedelta(days=1)
    at = at if at.tzinfo is not None else at.replace(tzinfo=zone)
    return int(at.timestamp()) * 1000 - (1 if last and whole_day else 0)
