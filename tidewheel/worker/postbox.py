"""The thread that reads this worker's mail: one partition of ``mail``, from its end at the worker's start, for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tidewheel.core.mail import AnyMail, Mail
from tidewheel.log.interface import MAIL, Log, LogError
from tidewheel.wire import codec

RECORDS_MAX = 500
#: How long a read may wait; bounds how long closing takes.
WAIT_S = 0.1
RETRY_S = 0.5

_log = structlog.get_logger(__name__)


class Postbox:
    """Opened before the worker joins a pool, so that no mail can come before it is read."""

    def __init__(self, log: Log, partition: int, receiver: str, handle: Callable[[AnyMail], None]) -> None:
        self._log = log
        self._key = receiver.encode()
        self._receiver = receiver
        self._handle = handle
        self._partition = partition
        self._reader = log.reader({(MAIL, partition): log.end_offset(MAIL, partition)})
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidewheel-mail", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop reading."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(WAIT_S + 5)
        self._reader.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                records = self._reader.read(RECORDS_MAX, WAIT_S)
            except LogError as error:
                _log.warning("mail cannot be read; trying again", error=str(error), retry_s=RETRY_S)
                self._closing.wait(RETRY_S)
                continue
            for record in records:
                # Others may read the same partition: their mail is told by its key, undecoded.
                if record.key == self._key and record.value is not None:
                    self._open(record.value, record.offset)

    def _open(self, value: bytes, offset: int) -> None:
        """Handle one letter; a bad one must not keep the others from being read."""
        try:
            mail = codec.decode(value)
            if isinstance(mail, Mail) and mail.receiver == self._receiver:
                self._handle(mail)  # type: ignore[arg-type]
        except Exception:
            _log.exception("a letter could not be handled; it is dropped", partition=self._partition, offset=offset)
