"""The library over HTTP: documents, pages, search, status."""

from __future__ import annotations

from fastapi import APIRouter

from daemon.server import (
    library_api_documents,
    library_api_pages,
    library_api_search,
    library_api_status,
    uploads,
)

router = APIRouter()
for part in (uploads, library_api_documents, library_api_pages, library_api_search, library_api_status):
    router.include_router(part.router)
