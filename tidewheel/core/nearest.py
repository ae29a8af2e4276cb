"""The name somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: Below this likeness a suggestion confuses more than it helps.
_LIKENESS = 0.6
#: Comparing a name with very many others is slow, and a name that long is no typing mistake.
_LENGTH_MAX = 100


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing when no known name is near."""
    if len(name) > _LENGTH_MAX:
        return ""
    by_folded = {one.casefold(): one for one in known}
    near = get_close_matches(name.casefold(), by_folded, n=1, cutoff=_LIKENESS)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""
