"""The OpenAI-compatible endpoint, asked by OpenAI's own client over a real connection, and by ruder ones."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from daemon.server.serve import HttpServer
from pipeline.engines.fake import FakeEngine
from storage.settings import Settings
from tests.daemon.conftest import pdf_of, png_of
from tests.daemon.server.running import PATIENCE_S, Working, Writing, serving, settings_in, wait_for

WORDS = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def messages(*urls: str, text: str = "Read this.") -> Any:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [
        {"role": "system", "content": "You read pages."},
        {"role": "user", "content": [{"type": "text", "text": text}, *parts]},
    ]


def client(server: HttpServer, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{server.url}v1", api_key="none", **{"max_retries": 0, "timeout": PATIENCE_S, **options}
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_in(tmp_path_factory.mktemp("home"), max_image_pixels=1_000_000)


@pytest.fixture(scope="module")
def server(settings: Settings) -> Iterator[HttpServer]:
    """A server whose worker reads with the fake and with Tesseract."""
    with Working(settings), serving(settings) as running:
        yield running


@contextlib.contextmanager
def written_by(home: Path, engine: FakeEngine, most: int = 32) -> Iterator[tuple[HttpServer, Working]]:
    settings = settings_in(home)
    with Working(settings, lambda name, _: engine, most) as working, serving(settings) as running:
        yield running, working


def test_a_picture_is_read(server: HttpServer) -> None:
    answer = client(server).chat.completions.create(model="auto", messages=messages(data_url(png_of(1))))
    assert answer.choices[0].message.content.startswith("Page 1 of pixels")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion"
    assert answer.model == "auto"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 0  # no model read it
    assert answer.model_extra is not None
    assert answer.model_extra["ocrd"]["pages"][0]["engine"] == "fake"


def test_an_engine_is_chosen_by_name(server: HttpServer) -> None:
    answer = client(server).chat.completions.create(
        model="tesseract",
        messages=messages(data_url(text_picture("Invoice 4711"))),
        extra_body={"user": "me"},
    )
    assert answer.choices[0].message.content == "Invoice 4711"


def text_picture(text: str) -> bytes:
    from PIL import ImageDraw, ImageFont

    image = Image.new("RGB", (700, 160), "white")
    ImageDraw.Draw(image).text((40, 40), text, fill="black", font=ImageFont.load_default(60))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_every_page_of_a_pdf_is_read_in_order(server: HttpServer) -> None:
    document = data_url(pdf_of(["First page", "Second page", "Third page"]), "application/pdf")
    answer = client(server).chat.completions.create(model="auto", messages=messages(document))
    assert answer.choices[0].message.content == "First page\n\nSecond page\n\nThird page"
    assert answer.model_extra is not None
    assert [page["page"] for page in answer.model_extra["ocrd"]["pages"]] == [1, 2, 3]


def test_several_documents_are_read_in_order(server: HttpServer) -> None:
    urls = [data_url(pdf_of([f"Letter {n}", f"Enclosure {n}"]), "application/pdf") for n in range(2)]
    answer = client(server).chat.completions.create(model="auto", messages=messages(*urls))
    assert answer.choices[0].message.content == "Letter 0\n\nEnclosure 0\n\nLetter 1\n\nEnclosure 1"


def test_pages_of_an_earlier_turn_are_not_read_again(server: HttpServer) -> None:
    first, then = messages(data_url(pdf_of(["Old"]))), messages(data_url(pdf_of(["New"])))
    said = [*first, {"role": "assistant", "content": "Old"}, *then, {"role": "user", "content": "And?"}]
    answer = client(server).chat.completions.create(model="auto", messages=said)
    assert answer.choices[0].message.content == "New"


def test_a_stream_says_the_same_as_the_whole(server: HttpServer) -> None:
    document = messages(data_url(pdf_of(["First page", "Second page"]), "application/pdf"))
    chunks = list(
        client(server).chat.completions.create(
            model="auto", messages=document, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "First page\n\nSecond page"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def test_text_is_streamed_as_it_is_accepted(tmp_path: Path) -> None:
    passes = threading.Semaphore(0)
    with written_by(tmp_path, Writing(WORDS, passes)) as (running, _):
        passes.release(2)
        stream = client(running).chat.completions.create(
            model="auto", messages=messages(data_url(png_of(1))), stream=True
        )
        texts = (chunk.choices[0].delta.content for chunk in stream)
        assert [next(texts), next(texts), next(texts)] == [
            "",
            "The ",
            "quick ",
        ]  # while the rest is not written
        passes.release(len(WORDS))
        assert "".join(filter(None, texts)).split() == WORDS[2:]


def test_a_client_that_goes_away_stops_the_decode_within_a_pass(tmp_path: Path) -> None:
    passes = threading.Semaphore(0)
    engine = Writing(["word"] * 1000, passes)
    with written_by(tmp_path, engine) as (running, working):
        passes.release(3)
        stream = client(running).chat.completions.create(
            model="auto", messages=messages(data_url(png_of(1))), stream=True
        )
        next(stream)
        assert engine.began.wait(PATIENCE_S)
        stream.close()
        gone_by(working)
        passes.release(1)
        assert engine.closed.wait(PATIENCE_S)
        assert engine.written <= 4
        leaves_nothing(working)


def gone_by(working: Working) -> None:
    """Until the worker knows that nobody waits: another thread tells it, or a word that it cannot send."""
    wait_for(lambda: (asked := working.desk._in_hand) is None or asked.gone)


def leaves_nothing(working: Working) -> None:
    folder = working.settings.home / "asks"
    wait_for(lambda: not [p for p in folder.iterdir() if p.suffix == ".tmp"])


def test_a_client_that_takes_nothing_holds_up_no_worker(tmp_path: Path) -> None:
    engine = Writing(["w" * 500_000] * 40)  # more than lies in the buffers of a connection
    with written_by(tmp_path, engine) as (running, working):
        body = json.dumps({"messages": messages(data_url(png_of(1))), "stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        with socket.create_connection(("127.0.0.1", running.port)) as caller:
            caller.sendall(head % len(body) + body)
            wait_for(lambda: engine.written == 40 and working.desk._in_hand is None)


def test_a_client_that_does_not_stream_may_go_away_too(tmp_path: Path) -> None:
    passes = threading.Semaphore(0)
    engine = Writing(["word"] * 1000, passes)
    with written_by(tmp_path, engine) as (running, working):
        passes.release(1)
        body = json.dumps({"model": "auto", "messages": messages(data_url(png_of(1)))}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        with socket.create_connection(("127.0.0.1", running.port)) as caller:
            caller.sendall(head % len(body) + body)
            assert engine.began.wait(PATIENCE_S)
        gone_by(working)
        passes.release(1)
        assert engine.closed.wait(PATIENCE_S)
        assert engine.written <= 2
        leaves_nothing(working)


def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    passes = threading.Semaphore(0)
    engine = Writing(["word"], passes)
    with written_by(tmp_path, engine, most=2) as (running, working):
        answers: list[str | None] = []

        def ask(user: str) -> None:
            answer = client(running).chat.completions.create(
                model="auto", messages=messages(data_url(png_of(1))), user=user
            )
            answers.append(answer.choices[0].message.content)

        threads = [threading.Thread(target=ask, args=(str(n),)) for n in range(2)]
        threads[0].start()
        assert engine.began.wait(PATIENCE_S)
        threads[1].start()
        wait_for(lambda: working.desk.waiting == 1)
        with pytest.raises(openai.RateLimitError) as refused:
            ask("late")
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        assert refused.value.code == "queue_full"
        passes.release(2)
        for thread in threads:
            thread.join(PATIENCE_S)
        assert answers == ["word", "word"]


def test_a_client_that_floods_does_not_hold_up_another(tmp_path: Path) -> None:
    """Two clients in turns: the second one's page is read after one of the first's, not after all of them."""
    passes = threading.Semaphore(0)
    engine = Writing(["word"], passes)
    with written_by(tmp_path, engine) as (running, working):
        done: list[str] = []

        def ask(user: str) -> None:
            client(running).chat.completions.create(
                model="auto", messages=messages(data_url(png_of(1))), user=user
            )
            done.append(user)

        threads = [threading.Thread(target=ask, args=("flood",)) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_for(lambda: working.desk.waiting == 4)
        threads.append(threading.Thread(target=ask, args=("one",)))
        threads[-1].start()
        wait_for(lambda: working.desk.waiting == 5)
        for finished in range(1, 7):  # a pass is a page here
            passes.release(1)
            wait_for(lambda finished=finished: len(done) == finished)
        for thread in threads:
            thread.join(PATIENCE_S)
        assert done.index("one") <= 2


def test_who_waits_at_a_worker_that_leaves_is_read_for_by_the_next(tmp_path: Path) -> None:
    passes = threading.Semaphore(0)
    engine, settings, answers = Writing(["word"], passes), settings_in(tmp_path), []

    def ask(user: str) -> None:
        answer = client(running).chat.completions.create(
            model="auto", messages=messages(data_url(png_of(1))), user=user
        )
        answers.append(answer.choices[0].message.content)

    with serving(settings) as running:
        threads = [threading.Thread(target=ask, args=(str(n),)) for n in range(2)]
        with Working(settings, lambda name, _: engine) as leaving:
            threads[0].start()
            assert engine.began.wait(PATIENCE_S)
            threads[1].start()
            wait_for(lambda: leaving.desk.waiting == 1)
            assert leaving.worker is not None
            leaving.worker.stop = leaving._end = True
            passes.release(1)
        assert len(answers) <= 1
        with Working(settings, lambda name, _: FakeEngine("text:the next one")):
            for thread in threads:
                thread.join(PATIENCE_S)
    assert answers == ["word", "the next one"]


def test_without_a_worker_it_says_so(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from daemon.server import askers
    from daemon.server.app import create_app

    settings = settings_in(tmp_path)
    app = create_app(settings, asks=askers.Askers(settings.home, wait_s=0.0))
    body = {"model": "auto", "messages": messages(data_url(png_of(1)))}
    with TestClient(app, base_url="http://localhost") as caller:
        answer = caller.post("/v1/chat/completions", json=body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_worker"
    assert "Retry-After" in answer.headers


@pytest.mark.parametrize(("stream", "kind"), [(False, "length"), (True, "length"), (False, "repetition")])
def test_why_it_ended_is_told(tmp_path: Path, stream: bool, kind: str) -> None:
    engine = FakeEngine("truncate" if kind == "length" else "loop:again and again and again")
    with written_by(tmp_path, engine) as (running, _):
        asked = messages(data_url(png_of(1)))
        answer = client(running).chat.completions.create(model="auto", messages=asked, stream=stream)
        reason = list(answer)[-1].choices[0].finish_reason if stream else answer.choices[0].finish_reason
    assert reason == kind


def error_of(caller: openai.OpenAI, kind: type[openai.APIStatusError], asked: Any = None, **body: Any) -> Any:
    with pytest.raises(kind) as refused:
        caller.chat.completions.create(
            **{"model": "auto", "messages": asked or messages(data_url(png_of(1))), **body}
        )
    return refused.value


@pytest.mark.parametrize("stream", [False, True])
def test_an_image_beyond_the_pixel_limit_is_refused(server: HttpServer, stream: bool) -> None:
    image = Image.new("1", (2000, 1000), 1)
    data = io.BytesIO()
    image.save(data, "PNG")
    error = error_of(
        client(server), openai.APIStatusError, messages(data_url(data.getvalue())), stream=stream
    )
    assert error.status_code == 413
    assert error.code == "too_large"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:image/png;base64,%%%", "invalid_data_url"),
        ("data:image/png;base64,", "invalid_data_url"),
        ("data:image/png,plain", "invalid_data_url"),
        ("data:", "invalid_data_url"),
        ("", "invalid_url"),
        ("ftp://example.org/a.png", "invalid_url"),
        ("javascript:alert(1)", "invalid_url"),
        (data_url(b"no picture at all"), "not_a_document"),
        (data_url(png_of(1)[:200]), "corrupt"),
        (data_url(b"%PDF-1.7\nbroken", "application/pdf"), "corrupt"),
    ],
)
def test_a_url_that_holds_no_page_is_a_bad_request(server: HttpServer, url: str, code: str) -> None:
    error = error_of(client(server), openai.BadRequestError, messages(url))
    assert error.code == code
    assert error.type == "invalid_request_error"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "file:///etc/no-such-file", "http://127.0.0.1/a.png"])
def test_what_is_not_allowed_is_refused_alike_whether_it_exists(server: HttpServer, url: str) -> None:
    error = error_of(client(server), openai.PermissionDeniedError, messages(url))
    assert error.code in ("file_refused", "remote_refused")
    assert "passwd" not in error.message


@pytest.mark.parametrize(
    ("body", "kind", "code", "param"),
    [
        ({"model": "gpt-4o"}, openai.NotFoundError, "model_not_found", "model"),
        ({"model": "/srv/models/mine"}, openai.NotFoundError, "model_not_found", "model"),
        ({"model": "dots-ocr"}, openai.NotFoundError, "model_not_found", "model"),
        ({"messages": []}, openai.BadRequestError, "no_image", "messages"),
        (
            {"messages": [{"role": "user", "content": "hello"}]},
            openai.BadRequestError,
            "no_image",
            "messages",
        ),
        ({"messages": 5}, openai.BadRequestError, "invalid_value", "messages"),
        ({"max_tokens": 0}, openai.BadRequestError, "invalid_value", "max_tokens"),
        ({"extra_body": {"mode": "sideways"}}, openai.BadRequestError, "invalid_value", "mode"),
        ({"extra_body": {"task": "poem"}}, openai.BadRequestError, "invalid_value", "task"),
        ({"extra_body": {"mode": "lookup"}}, openai.BadRequestError, "settings", None),
    ],
)
def test_what_cannot_be_done_is_told_in_openais_shape(
    server: HttpServer, body: dict[str, Any], kind: Any, code: str, param: str | None
) -> None:
    error = error_of(client(server), kind, **body)
    assert (error.code, error.param) == (code, param)
    assert error.body["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 10_000, b'{"messages":[' + b"{}," * 60_000 + b"{}]}"],
)
def test_a_body_that_is_no_request_is_refused(server: HttpServer, body: bytes) -> None:
    answer = httpx.post(f"{server.url}v1/chat/completions", content=body, timeout=PATIENCE_S)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}


def test_a_body_over_the_limit_is_refused_before_it_is_sent(server: HttpServer) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as caller:
        caller.sendall(head % (1 << 40))
        assert caller.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_a_failing_page_is_no_reason_to_ask_again(tmp_path: Path) -> None:
    sent: list[httpx.Request] = []
    counting = openai.DefaultHttpxClient(event_hooks={"request": [sent.append]})
    with written_by(tmp_path, FakeEngine("error")) as (running, _):
        error = error_of(client(running, max_retries=2, http_client=counting), openai.APIStatusError)
    assert error.code == "engine"
    assert len(sent) == 1


def test_a_failure_in_the_middle_of_a_stream_is_an_event(tmp_path: Path) -> None:
    with written_by(tmp_path, FakeEngine("error:2")) as (running, _):
        stream = client(running).chat.completions.create(
            model="auto", messages=messages(data_url(png_of(1)), data_url(scan_of_two())), stream=True
        )
        with pytest.raises(openai.APIError) as broken:
            list(stream)
    assert broken.value.code == "engine"


def scan_of_two() -> bytes:
    pages = [Image.open(io.BytesIO(png_of(n))) for n in (2, 3)]
    data = io.BytesIO()
    pages[0].save(data, "TIFF", save_all=True, append_images=pages[1:])
    return data.getvalue()


def test_models_are_listed(server: HttpServer) -> None:
    names = [model.id for model in client(server).models.list()]
    assert {"auto", "classic", "tesseract", "tiny"} <= set(names)
    assert "dots-ocr" not in names
    assert client(server).models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client(server).models.retrieve("gpt-4o")


def test_a_watched_file_may_be_named_where_that_is_allowed(tmp_path: Path) -> None:
    from daemon.server.urls import Reach

    settings = settings_in(tmp_path / "home")
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "a letter.png").write_bytes(png_of(1))
    with Working(settings), serving(settings, reach=Reach((folder,))) as running:
        url = (folder / "a letter.png").as_uri()
        answer = client(running).chat.completions.create(model="auto", messages=messages(url))
        assert answer.choices[0].message.content.startswith("Page 1 of pixels")
        error_of(client(running), openai.PermissionDeniedError, messages((tmp_path / "home").as_uri()))
