"""Effects of a task on the outside, fenced: an attempt that was replaced cannot overwrite what its successor wrote.

The engine records at most one result of a task, but it cannot call back what an old attempt still sends to a database
or a bucket: a process that was stopped and goes on, a request that was long under way. Only the store itself can
refuse such a write. Here is what makes it refuse, by the attempt's number:

* ``tidewheel.effects.postgres``: the user's own transaction claims the task's row first (`fenced`), and an effect can
  be bound to a mark that it was done (`once`).
* ``FencedRecord`` over a ``ConditionalStore``: small records, such as the address of a file, in any store that can put
  on a condition; ``FsspecStore`` is one on local disks, S3, Google Cloud Storage and Azure.

None of it needs the engine, its log or its read model at run time.
"""

from tidewheel.effects.fsspec_store import FsspecStore
from tidewheel.effects.record import FencedRecord
from tidewheel.effects.store import CannotFence, ConditionalStore, Stored
from tidewheel.effects.token import StaleAttempt, Token, current_token
from tidewheel.task.context import Attempt

__all__ = [
    "Attempt",
    "CannotFence",
    "ConditionalStore",
    "FencedRecord",
    "FsspecStore",
    "StaleAttempt",
    "Stored",
    "Token",
    "current_token",
]
