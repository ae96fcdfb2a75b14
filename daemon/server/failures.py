"""What a failure becomes over HTTP: a status, and one JSON shape that OpenAI's clients understand.

{"error": {"message": …, "type": …, "param": …, "code": …, "remedy": …}}
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from storage.database import explain
from storage.errors import ExitCode, OcrdError, class_of, from_os_error

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

log = logging.getLogger(__name__)

# What the client got wrong is 4xx, what may pass by itself 503, what a person must mend here 500.
_STATUS = {
    ExitCode.SETTINGS: 400,
    ExitCode.PASSWORD: 400,
    ExitCode.BAD_INPUT: 400,
    ExitCode.TOO_LARGE: 413,
    ExitCode.UNSUPPORTED: 415,
    ExitCode.STORAGE: 503,
    ExitCode.BUSY: 409,
    ExitCode.DATABASE: 503,
}
# Of one code, where the kind of failure alone would say something else.
_STATUS_OF_CODE = {
    "image_refused": 422,
    "model_missing": 404,
    "engine_unavailable": 400,
    "untrusted_model": 403,
}
_CODES = {404: "not_found", 405: "method", 408: "too_slow", 413: "too_large"}
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refused(Exception):
    """A request that is not served, and how that is told. Raise it from any endpoint."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        remedy: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.remedy = remedy
        self.headers = dict(headers or {})


def http_status(code: str) -> int:
    """The HTTP status for the code of one of our errors."""
    kind = class_of(code) or OcrdError
    return _STATUS_OF_CODE.get(code) or _STATUS.get(kind.exit_code, 500)


def refusal(error: Exception) -> Refused:
    """Any exception as what the client is told. Unexpected ones are logged with their traceback and told without."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, OSError):
        error = from_os_error(error)
    if isinstance(error, sqlite3.Error):
        error = explain(error) or error
    if isinstance(error, OcrdError):
        return Refused(http_status(error.code), error.message, code=error.code, remedy=error.remedy)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "http")
        return Refused(error.status_code, str(error.detail), code=code, headers=error.headers)
    log.error("unexpected failure while serving", exc_info=error)
    return Refused(500, f"unexpected failure ({type(error).__name__})", code="internal")


def body(told: Refused) -> dict[str, object]:
    """The JSON of a failure."""
    kind = _TYPES.get(told.status, "invalid_request_error" if told.status < 500 else "server_error")
    return {
        "error": {
            "message": told.message,
            "type": kind,
            "param": told.param,
            "code": told.code,
            "remedy": told.remedy,
        }
    }


def respond(told: Refused) -> Response:
    """The answer that tells of a failure."""
    # OpenAI's clients try again after any 5xx, which would only fail again unless it may pass.
    again = {} if told.status < 500 or told.status == 503 else {"x-should-retry": "false"}
    return JSONResponse(body(told), told.status, again | told.headers)


def answer(request: Request, told: Refused) -> Response:
    """The same, as a page where a person's browser asks."""
    from daemon.server import pages

    return pages.error_page(request, told) if wants_html(request) else respond(told)


def install(app: FastAPI) -> None:
    """Have every failure told in the one shape; pages for people tell it their own way (`pages.error_page`)."""

    async def tell(request: Request, error: Exception) -> Response:
        return answer(request, refusal(error))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first.get("loc", ())[1:]) or None
        return await tell(
            request, Refused(422, f"{where or 'body'}: {first.get('msg', '')}", code="invalid", param=where)
        )

    app.add_exception_handler(RequestValidationError, invalid)
    for kind in (Refused, OcrdError, sqlite3.Error, OSError, HTTPException):
        app.add_exception_handler(kind, tell)


def wants_html(request: Request) -> bool:
    """Whether a person's browser asks for a page."""
    if request.url.path.startswith(("/api/", "/v1/", "/metrics", "/openapi")):
        return False
    return "text/html" in request.headers.get("accept", "")
