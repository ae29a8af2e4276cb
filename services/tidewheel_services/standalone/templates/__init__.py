"""What `tidewheel init` writes: a small project to begin with, one module each."""

from collections.abc import Mapping

from tidewheel_services.standalone.templates import etl, hello, python, scheduled
from tidewheel_services.standalone.templates.template import Template

TEMPLATES: Mapping[str, Template] = {
    "hello": hello.TEMPLATE,
    "etl": etl.TEMPLATE,
    "scheduled": scheduled.TEMPLATE,
    "python": python.TEMPLATE,
}
