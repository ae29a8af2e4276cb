"""The tests every log driver must pass; they ship with the interface.

A driver joins in a few lines, and declares what it cannot do, so that nothing is skipped in silence::

    class TestMemoryLog(LogContract, cannot={HOLD_OPEN}):
        def open(self, path: Path) -> Log:
            return MemoryLog(PARTITIONS)

A fault found in one driver becomes a test here, for all of them.
"""

from tidewheel.testing.log_contract.contract import LogContract
from tidewheel.testing.log_contract.driver import HOLD_OPEN, PARTITIONS

__all__ = ["HOLD_OPEN", "PARTITIONS", "LogContract"]
