"""What each of the last ended runs of a DAG came to, as a digest: by it is judged what somebody says of a run that is
not kept any more.

An entry has 16 bytes: 4 that name the run, 12 over what it came to and by which definition. Entries follow one another
in chunks, the newest last, so that 10,000 runs are 160 KB and one more copies 2 KB. Of a run that ended more than once
the last entry counts.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

from tidewheel.core.ended import packed
from tidewheel.core.graph import Definition
from tidewheel.core.state import EndedRun

#: How many ended runs of a DAG are remembered so at least. A promise of docs/operating-runs.md.
RECALLABLE_RUNS = 10_000
#: Entries of a chunk; the oldest chunk goes as a whole.
CHUNK_RUNS = 100
_NAME_BYTES = 4
_DIGEST_BYTES = 12
_ENTRY_BYTES = _NAME_BYTES + _DIGEST_BYTES

Digests: TypeAlias = tuple[bytes, ...]


def with_digest(digests: Digests, ended: EndedRun, definition: Definition) -> Digests:
    """The entries with that of a run that has just ended by ``definition``."""
    entry = _name(ended.run_id) + digest_of(packed(ended), definition)
    if not digests or len(digests[-1]) >= CHUNK_RUNS * _ENTRY_BYTES:
        return (*digests[-(RECALLABLE_RUNS // CHUNK_RUNS) :], entry)
    return (*digests[:-1], digests[-1] + entry)


def digest_in(digests: Digests, run_id: str) -> bytes | None:
    """The digest of the run's last end; None: it is not remembered.

    Once in a million times it is that of another run with the same name of 4 bytes; then nothing fits it.
    """
    name = _name(run_id)
    for chunk in reversed(digests):
        for at in range(len(chunk) - _ENTRY_BYTES, -1, -_ENTRY_BYTES):
            if chunk.startswith(name, at):
                return chunk[at + _NAME_BYTES : at + _ENTRY_BYTES]
    return None


def digest_of(run: bytes, definition: Definition) -> bytes:
    """Of an ended run, ``core.ended.packed``, and the definition by which it ended."""
    return blake2b(definition.digest + run, digest_size=_DIGEST_BYTES).digest()


def _name(run_id: str) -> bytes:
    return blake2b(run_id.encode(), digest_size=_NAME_BYTES).digest()
