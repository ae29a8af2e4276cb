"""What a template is: files, and what to try with them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_README = """\
# Workflows

    tidewheel validate .              # every mistake, with line and column
    tidewheel dev .                   # everything in one process; Ctrl-C ends it, the next start goes on

In another terminal:

{tries}

Editors that speak the YAML language server complete and check the YAML files by `workflow.schema.json`;
`tidewheel schema` prints the newest. State is kept in `.tidewheel/`; remove it to start over.
"""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A first project; ``tries`` are commands to go on with."""

    summary: str
    files: Mapping[str, str]
    tries: tuple[str, ...]

    def written(self) -> dict[str, str]:
        """Every file with its text, what all templates have in common included."""
        from tidewheel.definition.schema import workflow_schema_text

        return {
            **self.files,
            "README.md": _README.format(tries="\n".join(f"    tidewheel {line}" for line in self.tries)),
            "workflow.schema.json": workflow_schema_text(),
            ".gitignore": ".tidewheel/\n__pycache__/\n",
        }
