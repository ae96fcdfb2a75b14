"""The OpenAI-compatible endpoint: chat completions and models."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
