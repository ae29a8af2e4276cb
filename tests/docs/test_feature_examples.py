"""The list of examples is whole and says what their files say; the reference links each of them where it belongs."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, links, pages
from tidewheel.authoring.files import load_source, names_dags

EXAMPLES = ROOT / "examples" / "features"
LIST = "docs/examples.md"


def described() -> dict[str, str]:
    """Each example, and what it says of itself."""
    files = [file for file in sorted(EXAMPLES.iterdir()) if file.suffix == ".yaml" or names_dags(file)]
    found = {file.name: load_source(file, EXAMPLES).dags for file in files}
    return {name: dags[0].workflow.description for name, dags in found.items() if dags[0].workflow is not None}


def test_the_list_is_whole_and_says_what_the_files_say() -> None:
    listed = dict(
        re.findall(r"^\| \[`([\w.]+)`\]\(\.\./examples/features/\1\) \| (.+) \|$", pages()[LIST], re.MULTILINE)
    )
    there = described()
    assert listed.keys() == there.keys()
    # A file of several workflows is described as a whole.
    assert {name: text for name, text in listed.items() if name != "python_loop.py"} == {
        name: text for name, text in there.items() if name != "python_loop.py"
    }


def test_each_example_is_linked_where_its_feature_is_explained() -> None:
    linked = {
        link.rpartition("/")[2] for page in pages() if page not in (LIST, "docs/airflow.md") for link in links(page)
    }
    assert not described().keys() - linked
