"""The OpenAI-compatible endpoint: chat completions over pages, and the models there are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, TypeVar, cast

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from daemon.asks.frames import Ask
from daemon.server import chat_answer, chat_request, urls
from daemon.server.chat_answer import Completion
from daemon.server.failures import Refused, refusal
from daemon.server.staged import Staged

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from daemon.server.askers import Answer, Askers
    from daemon.server.chat_request import ChatRequest
    from daemon.server.database import Library
    from storage.settings import Settings

log = logging.getLogger(__name__)

MOST_PAGES = 200  # of one request
FIRST_S = 5.0  # so long a stream waits for its first page before it begins, since a failure then has a status
ALIVE_S = 15.0
CLIENT_GONE = 499  # nobody reads it; what servers log for it

router = APIRouter(prefix="/v1", tags=["openai"])
_T = TypeVar("_T")


@router.get("/models")
def models(request: Request) -> dict[str, object]:
    """What can be given as `model`: engines, and models on disk."""
    settings: Settings = request.app.state.settings
    names = ["auto", *chat_request.engines_here(settings), *chat_request.presets_here(settings)]
    return {"object": "list", "data": [_model(name) for name in dict.fromkeys(names)]}


@router.get("/models/{name}", responses={404: {"description": "No such model."}})
def model(name: str, request: Request) -> dict[str, object]:
    """One of them."""
    if all(found["id"] != name for found in cast("list[dict[str, object]]", models(request)["data"])):
        raise Refused(404, f"there is no model {name[:100]!r} here", code="model_not_found", param="model")
    return _model(name)


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ocrd"}


@router.post(
    "/chat/completions",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": chat_request.body_schema()}},
        }
    },
    responses={
        200: {"content": {"application/json": {}, "text/event-stream": {}}},
        **{
            status: {"description": text}
            for status, text in {
                400: "The request or its pictures cannot be used.",
                403: "The address of a picture is not allowed.",
                404: "No such model.",
                413: "Too large.",
                429: "Too many requests wait; see Retry-After.",
                500: "The engine or model fails at a page.",
                503: "Nothing reads just now; see Retry-After.",
            }.items()
        },
    },
)
async def chat_completions(request: Request) -> Response:
    """Read the pages of the last message that has any; streamed, as a model accepts the text, if `stream` says so."""
    asked = await run_in_threadpool(chat_request.parse, await request.body())
    settings: Settings = request.app.state.settings
    engine, name = chat_request.reader_for(asked, settings)
    pages = chat_request.pages_asked(asked)
    staged = Staged(settings.home)
    try:
        await run_in_threadpool(_stage, request, staged, pages)
        ask = Ask(
            documents=tuple(staged.paths),
            client=_client(request, asked),
            engine=engine,
            model=name,
            mode=asked.mode,
            task=asked.task,
            max_tokens=asked.budget,
            live=bool(asked.stream),
            climbs=asked.climbs,
            most_pages=MOST_PAGES,
        )
        answer = await _while_here(request, cast("Askers", request.app.state.asks).ask(ask))
    except BaseException:
        staged.close()
        raise
    if answer is None:
        staged.close()
        return Response(status_code=CLIENT_GONE)
    conversation = _Conversation(answer, staged, Completion(asked.model))
    return await (_streamed(request, asked, conversation) if asked.stream else _whole(request, conversation))


def _stage(request: Request, staged: Staged, pages: list[tuple[str, str]]) -> None:
    reach = _reach(request) if any(not url.startswith("data:") for url, _ in pages) else urls.Reach()
    for url, where in pages:
        with staged.file() as file:
            urls.copy(url, file, reach, private=request.app.state.settings.home, param=where)


def _reach(request: Request) -> urls.Reach:
    """What may be named, with the watched folders as they are now."""
    reach: urls.Reach = request.app.state.reach
    if not reach.watched:
        return reach
    with cast("Library", request.app.state.library).reading() as conn:
        return reach.with_watched(conn)


def _client(request: Request, asked: ChatRequest) -> str:
    """Who asks, for sharing turns: the address, and the name within it that the client gives itself."""
    address = request.client.host if request.client else ""
    name = asked.user or request.headers.get("user-agent", "")
    return f"{address} {name[: chat_request.LONGEST_CLIENT]}"


class _Conversation:
    """An answer in the making, its staged documents, and what is told of it; to be closed."""

    def __init__(self, answer: Answer, staged: Staged, completion: Completion) -> None:
        self.answer = answer
        self.staged = staged
        self.completion = completion

    def close(self) -> None:
        """Hang up and remove the documents."""
        self.answer.close()
        self.staged.close()

    async def to_end(self) -> None:
        """Take in every page. Raises: `Refused`."""
        while (frame := await self.answer.next()) is not None and frame["kind"] != "end":
            if frame["kind"] == "read":
                self.completion.pages.append(frame)

    async def pieces(self, usage: bool) -> AsyncIterator[bytes]:
        """Events as they come, `usage` among the last; a failure is one, too. Ends with `[DONE]` if nothing failed."""
        completion = self.completion
        yield chat_answer.event(completion.chunk({"role": "assistant", "content": ""}))
        streamed = False  # whether the page at hand has been told in parts
        told = False  # whether any text was told before it
        while True:
            try:
                frame = await self.answer.next(ALIVE_S)
            except Exception as error:  # what the client is told; `refusal` logs what is unexpected
                yield chat_answer.failed_event(refusal(error))
                return
            match frame["kind"] if frame is not None else None:
                case None:
                    yield chat_answer.WAITING
                case "page":
                    streamed = False
                case "delta" if frame is not None and frame["text"]:
                    text = chat_answer.SEPARATOR * (told and not streamed) + frame["text"]
                    streamed = told = True
                    yield chat_answer.event(completion.chunk({"content": text}))
                case "read" if frame is not None:
                    completion.pages.append(frame)
                    if not streamed and frame["markdown"]:
                        text = chat_answer.SEPARATOR * told + frame["markdown"]
                        told = True
                        yield chat_answer.event(completion.chunk({"content": text}))
                case "end":
                    break
        yield chat_answer.event(completion.last_chunk())
        if usage:
            yield chat_answer.event(completion.usage_chunk())
        yield chat_answer.DONE


async def _whole(request: Request, conversation: _Conversation) -> Response:
    try:
        if await _while_here(request, _true(conversation.to_end())) is None:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(conversation.completion.whole())
    finally:
        conversation.close()


async def _true(work: Awaitable[None]) -> bool:
    await work
    return True


async def _streamed(request: Request, asked: ChatRequest, conversation: _Conversation) -> Response:
    usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
    try:
        # A failure before the first page still has a status of its own.
        first = await _while_here(request, _true(conversation.answer.peek(FIRST_S)))
    except BaseException:
        conversation.close()
        raise
    if first is None:
        conversation.close()
        return Response(status_code=CLIENT_GONE)
    return _Hanging(conversation, conversation.pieces(usage))


class _Hanging(StreamingResponse):
    """A stream that hangs up when the client goes away, wherever that finds it."""

    def __init__(self, conversation: _Conversation, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self.conversation = conversation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.conversation.close()


async def _while_here(request: Request, work: Awaitable[_T]) -> _T | None:
    """The result of `work`, or None if the client went away meanwhile; then it is cancelled. Raises: as `work`."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, leaving):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await working


async def _left(request: Request) -> None:
    """Until the client goes away; its body has been taken in before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
