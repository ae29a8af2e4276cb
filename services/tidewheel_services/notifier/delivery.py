"""One notification to one target, through apprise, within a bounded time."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Self

from tidewheel_services.notifier.targets import Target
from tidewheel_services.notifier.wording import Kind

if TYPE_CHECKING:
    from apprise.plugins.base import NotifyBase

#: Longest one try may take; the library bounds single waits only, and some services answer a byte at a time.
TRY_S = 30.0
_REASON_MAX = 1_000


class Unusable(Exception):
    """The library does not understand the target's URL."""


class Delivery:
    """Delivers to one target, one notification at a time."""

    def __init__(self, target: Target, try_s: float = TRY_S) -> None:
        """Raises ``Unusable``."""
        self._target = target
        self._try_s = try_s
        self._service = _service(target)
        self._hanging: threading.Thread | None = None

    def send(self, title: str, body: str, kind: Kind) -> str:
        """Deliver; gives why that failed, or nothing. Never raises."""
        if self._hanging is not None and self._hanging.is_alive():
            return "an earlier try has not come back yet"
        said: list[str] = []
        thread = threading.Thread(
            target=self._try, args=(title, body, kind, said), name=f"send-{self._target.name}", daemon=True
        )
        thread.start()
        thread.join(self._try_s)
        if thread.is_alive():
            self._hanging = thread
            return f"no answer within {self._try_s:g} s"
        return self._target.masked("; ".join(said))[:_REASON_MAX]

    def _try(self, title: str, body: str, kind: Kind, said: list[str]) -> None:
        """``said`` gets what went wrong; empty: it was delivered."""
        try:
            said.extend(self._faults(title, body, kind))
        except BaseException as error:  # whatever a plug-in does, exiting included, it is this try that failed
            said.append(f"{type(error).__name__}: {error}")

    def _faults(self, title: str, body: str, kind: Kind) -> list[str]:
        from apprise import NotifyType

        with _Heard() as heard:
            delivered = bool(self._service.notify(body=body, title=title, notify_type=NotifyType(kind)))
        return [] if delivered else heard.lines or ["the service did not take it"]


def _service(target: Target) -> NotifyBase:
    import apprise

    asset = apprise.AppriseAsset(app_id="Tidewheel", app_desc="Tidewheel notifications", async_mode=False)
    with _Heard():
        found: Any = apprise.Apprise.instantiate(target.url, asset=asset, suppress_exceptions=True)
    if found is None:
        raise Unusable(
            f"the URL of target '{target.name}' is not understood: the service is unknown, or something is missing"
        )
    service: NotifyBase = found
    return service


class _Heard(logging.Filter):
    """Takes what the library logs in this thread while it is entered; nobody else gets it, for it may hold URLs.

    It changes nothing for other threads, and nothing for good: loggers belong to the whole process.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._loggers: list[logging.Logger] = []
        #: Warnings of the library itself.
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        loggers = list(logging.root.manager.loggerDict.items())
        # urllib3 names every address it calls; a filter hears only its own logger, not those below it.
        self._loggers = [
            logger
            for name, logger in loggers
            if isinstance(logger, logging.Logger) and name.partition(".")[0] in ("apprise", "urllib3")
        ]
        for logger in self._loggers:
            logger.addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        if record.levelno >= logging.WARNING and record.name == "apprise":
            self.lines.append(record.getMessage())
        return False
