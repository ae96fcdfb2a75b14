"""The whole HTTP interface as its own document describes it, fuzzed: whatever is sent, nothing breaks inside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance

from daemon.server.app import create_app
from tests.daemon.conftest import pdf_of, png_of
from tests.daemon.server.running import Working, settings_in
from tests.daemon.server.shelf import Shelf

EXAMPLES = settings(max_examples=40, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
ENDLESS = ("/api/events",)  # a stream that no answer ends; tested on its own


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """A home with pages in it, one of them failed, and a worker for what is asked."""
    base = tmp_path_factory.mktemp("library")
    shelf = Shelf(base / "home")
    papers = base / "papers"
    root_id = shelf.watch(papers)
    for name, data in {
        "a.pdf": pdf_of(["One", "Two"]),
        "b.png": png_of(1),
        "c.pdf": b"%PDF-1.4 broken",
    }.items():
        (papers / name).write_bytes(data)
        shelf.put(papers / name, root_id=root_id)
    shelf.read()
    with Working(settings_in(base / "home")):
        yield create_app(shelf.settings, hosts=("testserver",))
    shelf.conn.close()


def test_the_document_describes_the_endpoint_in_one_piece(app: FastAPI) -> None:
    document = app.openapi()
    assert document["openapi"].startswith("3.")
    assert {"/v1/chat/completions", "/v1/models", "/v1/models/{name}"} <= set(document["paths"])
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    assert "messages" in body["required"]
    assert "$ref" not in str(body)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_nothing_that_is_sent_breaks_it(app: FastAPI, mode: GenerationMode) -> None:
    """Requests as described, and requests that are not."""
    described = schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path=list(ENDLESS))
    asked = 0
    for found in described.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=40,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            response = case.call()
            assert response.status_code < 500, (case.as_curl_command(), response.text[:500])
            case.validate_response(response, checks=[content_type_conformance])

        with contextlib.suppress(
            Unsatisfiable
        ):  # an operation without parameters takes nothing that is wrong
            ask()
    assert asked > 200
