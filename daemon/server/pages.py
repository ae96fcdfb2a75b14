"""The pages for a person: search, reader, status, library."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from daemon.server.failures import Refused

router = APIRouter()


def error_page(request: Request, told: Refused) -> Response:
    """A failure as a page for a person."""
    return PlainTextResponse(f"{told.message}. {told.remedy or ''}", told.status, told.headers)
