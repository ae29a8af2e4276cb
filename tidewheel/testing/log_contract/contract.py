"""All topics of the contract in one class."""

from __future__ import annotations

from tidewheel.testing.log_contract.commits import Commits
from tidewheel.testing.log_contract.fencing import Fencing
from tidewheel.testing.log_contract.owners import Owners
from tidewheel.testing.log_contract.readers import Readers
from tidewheel.testing.log_contract.records import Records
from tidewheel.testing.log_contract.retention import Retention


class LogContract(Records, Readers, Owners, Commits, Fencing, Retention):
    """What every driver must do. Subclass it in a test module."""
