"""Keep secrets out of all that leaves the worker: their values and the forms in which programs commonly show them.

Masked are: the value; its forms as quoted by Python, shells, JSON, HTML and URLs; its base64 form (also when the value
stands inside a longer text, as in ``user:password``); and each line of a value of several lines. A value shorter than
``SECRET_CHARS_MIN`` cannot be masked without shredding ordinary text, so such a value is refused as a secret.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

SECRET_CHARS_MIN = 4
#: A line of a longer secret (a PEM key) shorter than this is too ordinary to mask by itself.
LINE_CHARS_MIN = 8
MASK = "***"
#: One escape of a JSON string; the two halves of a character beyond U+FFFF are one.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")


def forms(value: str) -> frozenset[str]:
    """Every text that gives ``value`` away."""
    found = {value, quote(value), quote(value, safe=""), quote_plus(value)}
    found.add(json.dumps(value)[1:-1])
    found.add(json.dumps(value, ensure_ascii=False)[1:-1])
    # As PHP and others write JSON.
    found.add(json.dumps(value)[1:-1].replace("/", "\\/"))
    found.add(value.encode("unicode_escape").decode("ascii"))
    # As Python shows a text, as shells quote one, and as markup holds it.
    found |= {repr(value)[1:-1], ascii(value)[1:-1]}
    found |= {value.replace("'", quoted) for quoted in ("'\\''", "'\"'\"'")}
    found |= {html.escape(value), html.escape(value, quote=False)}
    found.update(line for line in map(str.strip, value.splitlines()) if len(line) >= LINE_CHARS_MIN)
    found.update(_base64_forms(value.encode("utf-8", "surrogateescape")))
    return frozenset(form for form in found if len(form) >= SECRET_CHARS_MIN)


def _base64_forms(data: bytes) -> Iterator[str]:
    """Base64 of ``data`` at each of its three places in a longer text, less the characters it shares there."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode("ascii")
        shared_after = (0, 3, 2)[(before + len(data)) % 3]
        core = encoded[(0, 2, 3)[before] : len(encoded) - shared_after]
        yield core
        yield core.replace("+", "-").replace("/", "_")


class Masker:
    """Knows the secrets of this worker; grows as they are resolved. Safe to use from any thread."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self.forms: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """From now on mask ``value``."""
        if value in self._values or len(value) < SECRET_CHARS_MIN:
            return
        with self._lock:
            self._values.add(value)
            # Longest first: an alternation takes the first that fits.
            self.forms = tuple(sorted({*self.forms, *forms(value)}, key=len, reverse=True))
            self.pattern = re.compile("|".join(map(re.escape, self.forms)))

    def mask(self, text: str) -> str:
        """``text`` without any secret."""
        pattern = self.pattern
        return text if pattern is None else pattern.sub(MASK, text)

    def mask_json(self, text: str) -> str:
        """The same for JSON text: whatever escapes its writer chose, the secret shows once somebody has read it."""
        if self.pattern is None:
            return text
        plain = _ESCAPE.sub(_plainest, text) if "\\" in text else text
        masked = self.mask(plain)
        return text if masked == plain else masked


def _plainest(escape: re.Match[str]) -> str:
    """The character itself where JSON allows it, else its shortest escape."""
    return json.dumps(json.loads(f'"{escape[0]}"'), ensure_ascii=False)[1:-1]


class StreamMasker:
    """Masks a text that comes in pieces: what might be the beginning of a secret is held back until the next piece."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""

    def feed(self, text: str) -> str:
        """Take the next piece; gives what can be shown now."""
        pattern = self._masker.pattern
        text = self._held + text
        if pattern is None:
            self._held = ""
            return text
        cut = len(text) - self._undecided(text)
        shown: list[str] = []
        position = 0
        for match in pattern.finditer(text):
            if match.start() >= cut:
                break
            if match.end() > cut:
                cut = match.start()
                break
            shown.append(text[position : match.start()])
            shown.append(MASK)
            position = match.end()
        shown.append(text[position:cut])
        self._held = text[cut:]
        return "".join(shown)

    def finish(self) -> str:
        """The rest, when no more will come."""
        rest, self._held = self._held, ""
        return self._masker.mask(rest)

    def _undecided(self, text: str) -> int:
        """Length of the longest end of ``text`` that is the beginning of a form and not yet all of it."""
        longest = 0
        for form in self._masker.forms:
            at = text.find(form[0], max(0, len(text) - len(form) + 1))
            while 0 <= at < len(text) - longest:
                if form.startswith(text[at:]):
                    longest = len(text) - at
                    break
                at = text.find(form[0], at + 1)
        return longest
