"""What the executors share whose tasks are processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidewheel.worker.secrets import Secrets
from tidewheel_services.worker.supervision import Supervisor

#: How long a task that is stopped has to end by itself.
GRACE_S = 10.0


@dataclass(frozen=True)
class Site:
    """Where a worker's tasks run: who starts their processes and ends them, and what these find."""

    supervisor: Supervisor
    secrets: Secrets
    project_dir: Path
    grace_s: float = GRACE_S
    #: The worker's own; tasks inherit what of it is not private.
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
