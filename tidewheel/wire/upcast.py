"""Old shapes to today's, where a field's name and default cannot say it.

A message of a published version is read by that version's schema. If fields only came (with defaults) or went
since then, nothing is to be done here. Else the version's fingerprint gets a function from its fields to a message of
today: a new *shape* is bridged here, while a new *meaning* is a new message. ``partition`` is among the fields of mail;
an event's envelope is not, it never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

Upcast = Callable[[dict[str, object]], msgspec.Struct]

#: Fingerprint (hex, as in ``published.jsonl``) → function. Empty: names and defaults bridge every version so far.
UPCASTS: Final[dict[str, Upcast]] = {}
