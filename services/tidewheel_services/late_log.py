"""A log that may be opened later: its user starts at once, and is told at each call what keeps the log away.

For processes that have something to say while there is no log, as the API has.
"""

from __future__ import annotations

import threading
from typing import cast

from tidewheel.log.interface import Log, LogUnavailable
from tidewheel_services.waiting_for_log import open_when_there

#: How long closing waits for a try at opening that is under way.
_CLOSE_S = 10.0


class LateLog:
    """The log at ``url``, opened in the background. Until then every call raises ``LogUnavailable``.

    A log that can never be used (``LogMisconfigured``, or a fault of ours) sets ``stop``; ``close`` then raises why.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self._url = url
        self._stop = stop
        self._why = "the log has not been reached yet"
        self._log: Log | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._open, name="open-log", daemon=True)
        self._thread.start()

    @property
    def log(self) -> Log:
        """Itself, as the log that it will be: ``__getattr__`` has whatever a log has, which no checker can see."""
        return cast(Log, self)

    def __getattr__(self, name: str) -> object:
        """What the opened log has by that name."""
        if self._log is None:
            raise LogUnavailable(self._why)
        return getattr(self._log, name)

    def close(self) -> None:
        """Stop trying, and let go. Raises why, if the log could never be used."""
        self._stop.set()
        self._thread.join(_CLOSE_S)
        if self._log is not None:
            self._log.close()
        if self._fault is not None:
            raise self._fault

    def _open(self) -> None:
        try:
            self._log = open_when_there(self._url, self._stop, on_wait=self._waits)
        except BaseException as error:
            self._fault = error
            self._stop.set()

    def _waits(self, why: str) -> None:
        self._why = why
