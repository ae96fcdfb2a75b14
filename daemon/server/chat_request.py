"""What is asked in OpenAI's words, as an `Ask`: which pictures, which model, how. All else in it is left aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.server.failures import Refused
from pipeline import model_files
from pipeline.engines import registry
from pipeline.engines.wishes import with_task
from pipeline.presets import PRESETS, Task
from storage.errors import OcrdError
from storage.settings import MODES

if TYPE_CHECKING:
    from storage.settings import Settings

MOST_DOCUMENTS = 64
# JSON of many small values takes thirty times its size in memory; what is asked here has few of them.
MOST_VALUES = 50_000
LONGEST_CLIENT = 64


class _Lenient(BaseModel):
    """Clients send more than we know of: what is unknown is ignored, as OpenAI's other servers do."""

    model_config = ConfigDict(extra="ignore")


class ImageUrl(_Lenient):
    """Where a picture or PDF is: a data: URL, or a file: or http(s) one where the server allows it."""

    url: str


class Part(_Lenient):
    """A part of a message: text, or a page to read."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None


class Message(_Lenient):
    """A message. Pages are taken from the last one that has any; text is not passed on to the model."""

    role: str
    content: str | list[Part] | None = None


class StreamOptions(_Lenient):
    """How a stream ends."""

    include_usage: bool | None = None


class ChatRequest(_Lenient):
    """The body of `POST /v1/chat/completions`."""

    model: str = "auto"
    messages: Annotated[list[Message], Field(max_length=1000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10**6)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10**6)] | None = None
    n: Literal[1] | None = None
    user: str | None = None
    mode: str | None = None  # who drafts: as --mode
    task: str | None = None  # what is asked of the model: one of its preset's tasks
    retry: bool | None = None  # whether a page that is cut short is read again in other ways

    @property
    def budget(self) -> int | None:
        """Tokens the answer may have."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def climbs(self) -> bool:
        """By default not while streaming (what was sent cannot be taken back), nor under a budget of the client's."""
        return self.retry if self.retry is not None else not (self.stream or self.budget)


def parse(body: bytes) -> ChatRequest:
    """The request in a body. Blocks: for a thread. Raises: `Refused` 400."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_VALUES:
        raise Refused(400, "the JSON has too many values", code="invalid_json")
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or None
        code = "invalid_json" if first["type"] == "json_invalid" else "invalid_value"
        raise Refused(400, f"{where or 'body'}: {first['msg']}", code=code, param=where) from None


def pages_asked(request: ChatRequest) -> list[tuple[str, str]]:
    """(URL, where it stands) of what is to be read. Raises: `Refused` where there is nothing, or too much."""
    for position in range(len(request.messages) - 1, -1, -1):
        if found := list(_urls(request.messages[position], f"messages.{position}")):
            break
    else:
        raise Refused(
            400,
            "no page to read: no message has an image_url",
            code="no_image",
            param="messages",
            remedy='add {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}',
        )
    if len(found) > MOST_DOCUMENTS:
        raise Refused(
            400,
            f"{len(found)} documents: {MOST_DOCUMENTS} may be asked for",
            code="too_many",
            param="messages",
        )
    return found


def _urls(message: Message, where: str) -> Iterator[tuple[str, str]]:
    if not isinstance(message.content, list):
        return
    for number, part in enumerate(message.content):
        if part.type == "image_url" or part.image_url is not None:
            url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
            yield (url or ""), f"{where}.content.{number}.image_url"


def reader_for(request: ChatRequest, settings: Settings) -> tuple[str | None, str | None]:
    """(engine, model) that the request's `model` means; None: as the workers' settings say.

    Only names: a folder that a request could choose would be code that it could run.
    Raises: `Refused` 404 for what is unknown or not here, 400 for a mode or task it does not know.
    """
    name = request.model
    if name in ("", registry.AUTO, "ocrd"):
        chosen: tuple[str | None, str | None] = (None, None)
    elif name in PRESETS:
        _require_here(name, settings)
        chosen = ("vlm", None if name == settings.model else name)
    elif name in engines_here(settings):
        chosen = (name, None)
    else:
        raise Refused(
            404,
            f"there is no model {name[:100]!r} here",
            code="model_not_found",
            param="model",
            remedy="GET /v1/models lists them",
        )
    _check_wishes(request, settings, *chosen)
    return chosen


def engines_here(settings: Settings) -> list[str]:
    """Engines that can be asked for by name: installed ones, `vlm` where the settings name a model."""
    names = [name for name in registry.ENGINES if name not in ("vlm", "fake") and registry.installed(name)]
    if settings.model is not None and registry.installed("vlm"):
        names.append("vlm")
    return [*names, "fake"] if settings.engine == "fake" else names


def presets_here(settings: Settings) -> list[str]:
    """Models that are on disk."""
    found = []
    for name in PRESETS if registry.installed("vlm") else ():
        try:
            model_files.locate(name, settings)
        except OcrdError:
            continue
        found.append(name)
    return found


def _require_here(name: str, settings: Settings) -> None:
    try:
        model_files.locate(name, settings)
    except OcrdError as error:
        raise Refused(
            404, error.message, code="model_not_found", param="model", remedy=error.remedy
        ) from None


def _check_wishes(request: ChatRequest, settings: Settings, engine: str | None, model: str | None) -> None:
    """Say at once what the worker would find out later."""
    if request.mode is not None and request.mode not in MODES:
        raise Refused(400, f"mode: choose one of {', '.join(MODES)}", code="invalid_value", param="mode")
    if request.task is not None and request.task not in set(Task):
        raise Refused(400, f"task: choose one of {', '.join(Task)}", code="invalid_value", param="task")
    name = model or (settings.model if engine == "vlm" else None)
    if request.task is None or name not in PRESETS:
        return
    try:
        with_task(PRESETS[name], request.task)
    except OcrdError as error:
        raise Refused(400, error.message, code="invalid_value", param="task", remedy=error.remedy) from None


def body_schema() -> dict[str, Any]:
    """The JSON schema of the body, in one piece."""
    schema = ChatRequest.model_json_schema()
    named = schema.pop("$defs")

    def whole(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return whole(named[node["$ref"].rpartition("/")[2]])
            return {key: whole(value) for key, value in node.items()}
        return [whole(value) for value in node] if isinstance(node, list) else node

    found: dict[str, Any] = whole(schema)
    return found
