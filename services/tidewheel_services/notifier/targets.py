"""Who can be told: names with a URL of the notification library, from the environment or a file.

``TIDEWHEEL_NOTIFY_<NAME>`` goes first, then the file that ``TIDEWHEEL_NOTIFIER_TARGETS`` names, with a line
``name = URL`` for each. URLs hold tokens and passwords: they are shown nowhere, and what is said of a delivery is
masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec

from tidewheel.definition.language import ID_PATTERN

PREFIX = "TIDEWHEEL_NOTIFY_"
FILE = "TIDEWHEEL_NOTIFIER_TARGETS"
_FILE_BYTES_MAX = 1024 * 1024
#: Parts of a URL between these may be secret; shorter ones would mask ordinary words.
_DIVIDERS = re.compile(r"[/:@?&=#,\s]+")
_SECRET_LENGTH_MIN = 4


class BadTargets(Exception):
    """The targets are set in a way that makes no sense; the message names the place and no URL."""


class Target(msgspec.Struct, frozen=True):
    """A name and where it leads."""

    name: str
    url: str

    def masked(self, text: str) -> str:
        """The text without any part of the URL that may be secret: all but its scheme and a host that looks like
        one."""
        scheme, _, rest = self.url.partition("://")
        host = re.split(r"[/?]", rest)[0].rpartition("@")[2].partition(":")[0]
        parts = {written for part in _DIVIDERS.split(rest) for written in (part, unquote(part))}
        shown = {scheme, host if "." in host or host == "localhost" else ""}
        for part in sorted(parts - shown, key=len, reverse=True):
            if len(part) >= _SECRET_LENGTH_MIN:
                text = text.replace(part, "***")
        return text

    def __repr__(self) -> str:
        """Without the URL."""
        return f"Target({self.name!r})"


def configured(environment: Mapping[str, str] | None = None) -> dict[str, Target]:
    """Every target by its name. Raises ``BadTargets``."""
    env = os.environ if environment is None else environment
    found = _from_file(Path(env[FILE])) if env.get(FILE) else {}
    for variable, url in env.items():
        if variable.startswith(PREFIX) and url.strip():
            name = variable[len(PREFIX) :].lower()
            found[name] = _target(name, url, variable)
    return dict(sorted(found.items()))


def _from_file(path: Path) -> dict[str, Target]:
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise BadTargets(f"{FILE}: {path} is larger than {_FILE_BYTES_MAX} bytes")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTargets(f"{FILE}: {path} cannot be read: {type(error).__name__}") from None
    found: dict[str, Target] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, url = line.partition("=")
        place = f"{path}:{number}"
        if not equals:
            raise BadTargets(f"{place}: write name = URL")
        if name.strip() in found:
            raise BadTargets(f"{place}: the target {name.strip()!r} is there already")
        found[name.strip()] = _target(name.strip(), url, place)
    return found


def _target(name: str, url: str, place: str) -> Target:
    if not re.fullmatch(ID_PATTERN, name, re.ASCII):
        raise BadTargets(
            f"{place}: {name!r} is no name of a target: small letters, digits and underscores, a letter first"
        )
    if "://" not in url or re.search(r"\s", url.strip()):
        raise BadTargets(f"{place}: the value is no URL of a notification service, such as mailto://… or slack://…")
    return Target(name, url.strip())
