"""The library over HTTP: documents, pages, search, status."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
