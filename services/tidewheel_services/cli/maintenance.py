"""Commands that keep the log and the read model in order: topics create, verify, projection rebuild and verify."""

from __future__ import annotations

import typer

from tidewheel_services.cli.faults import REFUSED
from tidewheel_services.cli.options import Dsn, Json, LogUrl, settings
from tidewheel_services.cli.output import write, write_json
