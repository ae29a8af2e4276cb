"""Request bodies: strict JSON into pydantic models, with every mistake named at once.

FastAPI's own reading of bodies lets through what would poison a journal (``NaN``, lone surrogates) and does not say
where a JSON text breaks. So bodies are read here, and a route documents its model by ``documented``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from tidewheel.core.nearest import did_you_mean
from tidewheel_services.api.problems import Problem, invalid

JSON_TYPES = frozenset({"application/json"})
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


class Body(BaseModel):
    """Base of request bodies: no unknown field, no silent conversion."""

    model_config = ConfigDict(extra="forbid", strict=True)


Model = TypeVar("Model", bound=Body)


def media_type(request: Request) -> str:
    """The body's media type without parameters; empty when none is given."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def text_of(request: Request) -> str:
    """The whole body as text. Raises ``Problem`` if it is not UTF-8."""
    raw = await request.body()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Problem("malformed", f"the body is not UTF-8: byte {error.start}") from error


async def json_of(request: Request) -> object:
    """The body as a JSON value; an empty body is an empty object. Raises ``Problem``."""
    text = await text_of(request)
    if not text.strip():
        return {}
    given = media_type(request)
    if given not in JSON_TYPES:
        detail = f"the body is sent as {given or 'nothing'}; send it with 'Content-Type: application/json'"
        raise Problem("unsupported_media_type", detail)
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise Problem("malformed", f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Problem("malformed", "the body is not JSON we read: it is nested too deeply") from error
    if "\\u0000" in text and _holds_nul(value):
        raise Problem("malformed", "the body holds the character U+0000, which can be stored nowhere; leave it out")
    return value


def body_of(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """A dependency that gives the body as ``model``."""

    async def read(request: Request) -> Model:
        value = await json_of(request)
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise invalid([_told(entry, model) for entry in error.errors()]) from error

    return read


def _told(error: ErrorDetails, model: type[Body]) -> dict[str, object]:
    """A mistake with its place in the body, and in words that name nothing of this program's insides."""
    place, message = error["loc"], error["msg"]
    if error["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in model.model_fields.items()] if len(place) == 1 else []
        message = f"there is no key '{place[-1]}' here{did_you_mean(str(place[-1]), known)}"
    elif error["type"] == "model_type":
        message = "expected a JSON object"
    return {**error, "loc": ("body", *place), "msg": message}


def documented(model: type[Body], *, required: bool, example: Mapping[str, object]) -> dict[str, Any]:
    """The OpenAPI entry of a route whose body is ``model``."""
    content = {"schema": model.model_json_schema(), "example": dict(example)}
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


def _holds_nul(value: object) -> bool:
    match value:
        case str():
            return "\x00" in value
        case list():
            return any(_holds_nul(item) for item in value)
        case dict():
            return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
        case _:
            return False
