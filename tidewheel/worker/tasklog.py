"""A task's log, shipped in chunks while the task runs: masked, decoded with care, bounded."""

from __future__ import annotations

import codecs
import threading
import time
from typing import Literal, Protocol

from tidewheel.core.attempt import AttemptKey
from tidewheel.wire.messages import LogChunk
from tidewheel.worker.masking import Masker, StreamMasker

Stream = Literal["stdout", "stderr", "system"]

#: A chunk is sent when it is this old or this big.
FLUSH_S = 0.2
CHUNK_CHARS = 16 * 1024
#: Per attempt; whoever writes more is told so in the log and goes on unrecorded.
LOG_CHARS_MAX = 10 * 1024 * 1024


class ChunkSink(Protocol):
    """Takes chunks on their way."""

    def put_chunk(self, chunk: LogChunk) -> bool:
        """Take the chunk; False: too many wait already, it is lost."""


class _Channel:
    """One stream's text that is not sent yet."""

    __slots__ = ("decoder", "masker", "pending", "pending_chars", "since")

    def __init__(self, masker: Masker) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.masker = StreamMasker(masker)
        self.pending: list[str] = []
        self.pending_chars = 0
        self.since = 0.0


class TaskLog:
    """The log of one attempt. Bytes come in any pieces; a character cut in two comes out whole, a secret masked."""

    def __init__(self, sink: ChunkSink, masker: Masker, key: AttemptKey, chars_max: int = LOG_CHARS_MAX) -> None:
        self._sink = sink
        self._masker = masker
        self._key = key
        self._room = chars_max
        self._chars_max = chars_max
        self._chunk = 0
        self._lost = 0
        self._channels: dict[Stream, _Channel] = {}
        self._lock = threading.Lock()

    def write(self, stream: Stream, data: bytes) -> None:
        """Take a piece of output."""
        with self._lock:
            channel = self._channel(stream)
            self._take(stream, channel, channel.masker.feed(channel.decoder.decode(data)))

    @property
    def masker(self) -> Masker:
        """What keeps this attempt's secrets out of whatever is shown of it."""
        return self._masker

    def remark(self, text: str) -> None:
        """Add a line of the worker's own."""
        with self._lock:
            self._take("system", self._channel("system"), self._masker.mask(text) + "\n")

    def due_s(self) -> float | None:
        """Seconds until ``flush_due`` has something to send; None: nothing waits."""
        with self._lock:
            waiting = [channel.since for channel in self._channels.values() if channel.pending]
        return max(0.0, min(waiting) + FLUSH_S - time.monotonic()) if waiting else None

    def flush_due(self) -> None:
        """Send what is old enough."""
        before = time.monotonic() - FLUSH_S
        with self._lock:
            for stream, channel in self._channels.items():
                if channel.pending and channel.since <= before:
                    self._send(stream, channel)

    def close(self) -> None:
        """Send all the rest."""
        with self._lock:
            for stream, channel in list(self._channels.items()):
                rest = channel.masker.feed(channel.decoder.decode(b"", final=True)) + channel.masker.finish()
                self._take(stream, channel, rest)
                self._send(stream, channel)
            if self._lost:
                lost, self._lost = self._lost, 0
                self._put("system", f"{lost} characters of this log were lost: the log could not be written in time\n")

    def _channel(self, stream: Stream) -> _Channel:
        channel = self._channels.get(stream)
        if channel is None:
            channel = self._channels[stream] = _Channel(self._masker)
        return channel

    def _take(self, stream: Stream, channel: _Channel, text: str) -> None:
        if not text or self._room < 0:
            return
        if len(text) > self._room:
            text = text[: self._room] + f"\n[tidewheel: output beyond {self._chars_max} characters is not kept]\n"
            self._room = -1
        else:
            self._room -= len(text)
        if not channel.pending:
            channel.since = time.monotonic()
        channel.pending.append(text)
        channel.pending_chars += len(text)
        if channel.pending_chars >= CHUNK_CHARS:
            self._send(stream, channel)

    def _send(self, stream: Stream, channel: _Channel) -> None:
        text = "".join(channel.pending)
        channel.pending.clear()
        channel.pending_chars = 0
        for start in range(0, len(text), CHUNK_CHARS):
            self._put(stream, text[start : start + CHUNK_CHARS])

    def _put(self, stream: Stream, text: str) -> None:
        dag, run_id, task, attempt = self._key
        chunk = LogChunk(
            dag=dag,
            run_id=run_id,
            task=task,
            attempt=attempt,
            chunk=self._chunk,
            at=time.time_ns() // 1_000_000,
            stream=stream,
            text=text,
        )
        if self._sink.put_chunk(chunk):
            self._chunk += 1
        else:
            self._lost += len(text)
