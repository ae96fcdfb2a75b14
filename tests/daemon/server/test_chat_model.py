"""The endpoint with a real model: what was accepted is streamed, and what nobody waits for ends and is freed."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

openai = pytest.importorskip("openai", reason="openai is not installed: `uv sync`")
pytest.importorskip("mlx_vlm", reason="mlx-vlm has no wheel for this machine")

from daemon.server.serve import HttpServer  # noqa: E402  # after what is skipped without
from tests.daemon.server.running import Working, serving, settings_in, wait_for  # noqa: E402
from tests.daemon.server.test_chat import client, data_url, messages, text_picture  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServer, Working]]:
    settings = settings_in(tmp_path_factory.mktemp("home"), engine="vlm", model="tiny", calibrate=False)
    with Working(settings) as working, serving(settings) as running:
        yield running, working


def ask(running: HttpServer, **body: Any) -> Any:
    return client(running, timeout=120).chat.completions.create(
        **{"model": "tiny", "messages": messages(data_url(text_picture("Invoice 4711"))), **body}
    )


def test_a_stream_has_the_text_of_the_whole_and_says_what_it_took(
    at_work: tuple[HttpServer, Working],
) -> None:
    running, _ = at_work
    whole = ask(running)
    chunks = list(ask(running, stream=True, stream_options={"include_usage": True}))
    deltas = [
        chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content
    ]
    assert "Invoice 4711" in whole.choices[0].message.content
    assert "".join(deltas).strip() == whole.choices[0].message.content
    assert len(deltas) > 1
    used = chunks[-1].usage
    assert used.prompt_tokens > 10
    assert used.completion_tokens >= len(deltas)
    assert used.model_dump() == whole.usage.model_dump()


def test_a_budget_ends_the_text_and_the_next_reading_has_its_own(at_work: tuple[HttpServer, Working]) -> None:
    running, _ = at_work
    short = ask(running, max_tokens=3)
    assert short.choices[0].finish_reason == "length"
    assert short.usage.completion_tokens == 3
    assert ask(running).choices[0].finish_reason == "stop"


@pytest.mark.parametrize("mode", ["none", "lookup", "reference"])
def test_who_drafts_is_chosen_by_request_and_changes_no_text(
    at_work: tuple[HttpServer, Working], mode: str
) -> None:
    running, _ = at_work
    answer = ask(running, extra_body={"mode": mode})
    assert "Invoice 4711" in answer.choices[0].message.content
    if mode == "none":
        assert answer.usage.completion_tokens_details.accepted_prediction_tokens == 0


def test_what_this_model_cannot_do_is_refused(at_work: tuple[HttpServer, Working]) -> None:
    running, _ = at_work
    for wish in ({"task": "formula"}, {"mode": "mtp"}):
        with pytest.raises(openai.BadRequestError):
            ask(running, extra_body=wish)


def sessions() -> list[Any]:
    from pipeline.adapter.session import MlxSession

    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, MlxSession)]


def test_a_client_that_goes_away_frees_the_cache_within_a_pass(at_work: tuple[HttpServer, Working]) -> None:
    """Of a page that would take hundreds of passes."""
    running, working = at_work
    stream = ask(running, messages=messages(data_url(full_page())), stream=True, extra_body={"mode": "none"})
    texts = (chunk.choices[0].delta.content for chunk in stream)
    assert len([next(texts) for _ in range(4)]) == 4
    assert len(sessions()) == 1
    stream.close()
    wait_for(lambda: working.desk._in_hand is None)
    wait_for(lambda: not sessions())
    assert "Invoice 4711" in ask(running).choices[0].message.content


def full_page() -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (900, 1100), "white")
    for row in range(24):
        ImageDraw.Draw(image).text(
            (40, 30 + row * 44), f"Line {row} of a long letter", fill="black", font=ImageFont.load_default(30)
        )
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_another_model_is_loaded_for_who_asks_and_the_own_one_stays(tmp_path: Path) -> None:
    """A worker that reads with Tesseract is asked for a model, then for Tesseract again."""
    settings = settings_in(tmp_path, engine="tesseract", calibrate=False)
    with Working(settings) as working, serving(settings) as running:
        assert "Invoice 4711" in ask(running).choices[0].message.content
        own = ask(running, model="auto")
        assert own.model_extra["ocrd"]["pages"][0]["engine"] == "tesseract"
        assert working.worker is not None
        assert len(working.worker._engines) == 2
