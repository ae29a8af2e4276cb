"""The JSON Schema of workflow files, for editors and other tools."""

from __future__ import annotations

import json
from typing import Any, Final

from tidewheel.definition.language import WORKFLOW

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def workflow_schema() -> dict[str, Any]:
    """The schema, made from the declarations that also parse."""
    return {"$schema": _DIALECT, "title": "Tidewheel workflow", **WORKFLOW.schema()}


def workflow_schema_text() -> str:
    """The schema as it lies in ``schemas/workflow.schema.json``."""
    return json.dumps(workflow_schema(), indent=2, ensure_ascii=False) + "\n"
