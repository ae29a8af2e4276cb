"""The log in one SQLite file: no server, for ``tidewheel dev``, a first run and tests.

Threads of one process share the file, and so do processes: any may read and send, one at a time may own. Writes are
safe against the end of the process at any instant (``kill -9`` included). Against power loss they are as safe as
SQLite's ``synchronous=NORMAL`` in WAL mode: the last transactions may be missing, but whole ones, in order, so the
journal stays true. Production runs on Kafka.
"""

from tidewheel.log.sqlite.log import SqliteLog

__all__ = ["SqliteLog"]
