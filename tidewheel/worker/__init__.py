"""The worker, as a class to embed in a service of one's own.

    worker = Worker(log, pools={"default": 64}, functions={"shop.etl:list_files": list_files})
    worker.start()
    …
    worker.stop(drain_s=30)

A task ``python: shop.etl:list_files`` then runs in this process: the function gets the task's ``with`` as keyword
arguments and its return value, at most 64 KiB of JSON, is the task's output. It may declare a parameter ``context``
or call ``current()``.

How it works. One thread reads the mail (``postbox``), the attempts run in threads that grow on demand (``slots``),
one thread watches the clock (``watch``), one sends (``outbox``). A lease is renewed by beats; the scheduler's
acknowledgement of a beat lets the lease run from when that beat was *made* (``lease``). An attempt whose lease nears
its end is killed while the lease still holds. So at no time do two workers run one task, whatever the network does,
as far as the task's code can be killed; a function in a thread cannot, and is told by ``context.cancelled``.

``tidewheel_services.worker`` adds what runs shell commands, HTTP requests and Python callables in processes of their
own.
"""

from tidewheel.task.context import Context, current
from tidewheel.task.outcome import Failed, Outcome, Succeeded
from tidewheel.worker.executor import Executor
from tidewheel.worker.naming import NameTaken
from tidewheel.worker.secrets import KnownSecrets, Secrets, SecretUnavailable
from tidewheel.worker.worker import Worker, WorkerBroken

__all__ = [
    "Context",
    "Executor",
    "Failed",
    "KnownSecrets",
    "NameTaken",
    "Outcome",
    "SecretUnavailable",
    "Secrets",
    "Succeeded",
    "Worker",
    "WorkerBroken",
    "current",
]
