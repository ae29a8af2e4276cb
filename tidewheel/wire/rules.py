"""What a value must be beyond its type: sizes, closed lists of words, and ids, times and counts from outside.

Events and mail are written by shard owners out of what passed these rules once; so ids, times and counts are checked in
commands, triggers and log chunks only. Names here without an underscore are what the code of ``wire.compiled`` calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NoReturn

from tidewheel.wire.faults import DecodeError, EncodeError

#: Of any message. Kafka takes batches up to about this (``max.message.bytes``) *after* compression, so what arrives may
#: be far larger; what a message holds by our own limits (an output of 64 KiB, a definition) is well below.
VALUE_BYTES_MAX: Final = 1 << 20
#: Of what comes in: smaller, so that the event which repeats what a command said still fits.
INPUT_BYTES_MAX: Final = VALUE_BYTES_MAX - (1 << 16)
#: A dead letter holds the record it is about, cut to fit, and yet must fit into ``log.limits.RECORD_BYTES_MAX``.
DEAD_LETTER_BYTES_MAX: Final = 1_400_000

#: The years 1000 to 9998: what calendars can say in every time zone, and what is written with four digits.
INSTANT_MIN: Final = -30_610_224_000_000
INSTANT_MAX: Final = 253_370_764_799_999

ID_LENGTH_MAX: Final = 200
RUN_ID_LENGTH_MAX: Final = 250
#: Distinct ids remembered as good; far above what one process meets, a bound only against a flood of invented ones.
_KNOWN_IDS_MAX: Final = 200_000

_ID: Final = re.compile(r"[a-z][a-z0-9_]*(\[[0-9]{1,9}\])?")
_CHECKED_PREFIXES: Final = ("tidewheel.commands.", "tidewheel.records.TriggerRun", "tidewheel.records.LogChunk")
#: Ids that have passed: the same few come again and again, and this is many times faster than the pattern.
KNOWN_IDS: Final[set[str]] = set()


def checks(schema: str, fields: Iterable[str]) -> list[str]:
    """The generated reader's lines that check what comes from outside."""
    if not schema.startswith(_CHECKED_PREFIXES):
        return []
    empty_allowed = schema.endswith((".StartRun", ".TriggerRun"))
    times = ("at", "started_at", "ended_at", "logical_date", "interval_start", "interval_end", "since", "until")
    counts = ("attempt", "slots", "pool_slots", "width")
    lines = {
        **{f: f"    if {f} and not {INSTANT_MIN} <= {f} <= {INSTANT_MAX}: bad_instant({f!r}, {f})" for f in times},
        **{f: f"    if {f} and {f} < 0: bad_count({f!r}, {f})" for f in counts},
        "dag": "    if dag not in KNOWN_IDS: check_id('dag', dag)",
        "pool": "    if pool not in KNOWN_IDS: check_id('pool', pool)",
        "task": "    if task not in KNOWN_IDS: check_id('task', task)",
        "run_id": f"    {'if run_id: ' if empty_allowed else ''}check_run_id('run_id', run_id)",
        "worker": "    check_run_id('worker', worker)",
    }
    return [lines[field] for field in fields if field in lines]


def check_id(field: str, value: str) -> None:
    """An id of a DAG, pool or task: a legal name in expressions, for a mapped task with its index."""
    if len(value) > ID_LENGTH_MAX:
        raise DecodeError("invalid", f"{field} has {len(value)} characters, at most {ID_LENGTH_MAX} are allowed")
    index = value.find("[")
    if not _ID.fullmatch(value) or (index >= 0 and field != "task"):
        raise DecodeError(
            "invalid",
            f"{field} {value!r} is no id: an id is a small letter (a-z), then small letters, digits and underscores",
        )
    if len(KNOWN_IDS) >= _KNOWN_IDS_MAX:
        KNOWN_IDS.clear()
    if index < 0:
        KNOWN_IDS.add(value)


def check_run_id(field: str, value: str) -> None:
    """A run's id or a worker's name: shown to people and put into addresses, so no control characters."""
    if not 0 < len(value) <= RUN_ID_LENGTH_MAX:
        raise DecodeError("invalid", f"{field} has {len(value)} characters, 1 to {RUN_ID_LENGTH_MAX} are allowed")
    if not value.isprintable():
        raise DecodeError("invalid", f"{field} {value!r} contains characters that cannot be printed")


def bad_instant(field: str, value: int) -> NoReturn:
    """A time that calendars and databases could not take."""
    raise DecodeError("invalid", f"{field}: {value} is outside the years 1000 to 9998 (milliseconds since 1970)")


def bad_count(field: str, value: int) -> NoReturn:
    """A count below nothing."""
    raise DecodeError("invalid", f"{field} is {value}; it counts from 0")


def bad_word(field: str, value: str, words: tuple[str, ...]) -> NoReturn:
    """A word that is not on the field's list."""
    raise DecodeError("invalid", f"{field} is {value[:100]!r}; allowed are {', '.join(words)}")


def too_large(size: int, limit: int) -> NoReturn:
    """A record over its message's limit."""
    raise DecodeError("oversized", f"the record has {size} bytes, at most {limit} are allowed")


def wrong_end(position: int, end: int) -> NoReturn:
    """The last field does not end where the record does."""
    if position > end:
        raise DecodeError("truncated", f"{position - end} bytes are missing at the end")
    raise DecodeError("trailing", f"{end - position} bytes follow the message, which ends at byte {position}")


def unwritable_word(field: str, value: object, words: tuple[str, ...]) -> NoReturn:
    """A message of ours with a word that nobody could read."""
    raise EncodeError(f"{field} is {value!r}; allowed are {', '.join(words)}")


def unwritable_size(size: int, limit: int) -> NoReturn:
    """A message of ours that nobody would read."""
    raise EncodeError(f"the record would have {size} bytes, at most {limit} are allowed")
