"""`ocrd read`: one file to standard output, without library, queue or workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import console, page_output
from daemon.commands import flags
from storage.errors import ExitCode, NotADocumentError, OcrdError

if TYPE_CHECKING:
    from pipeline.document import DocumentReader
    from storage.records import PageReading
    from storage.results import FailedPage
    from storage.settings import Settings


def read(
    path: Path,
    settings: Settings,
    *,
    pages: str | None = None,
    output: str = "md",
    password: str | None = None,
    live: bool = False,
) -> ExitCode:
    """Read the pages (as in `2-4,7`) and print them; a page that fails is reported, the others are printed.

    `live`: print a model's text as it is accepted, and what it took after each page (not with JSON).

    Raises: the input errors of `storage.errors` where the file as a whole cannot be read.
    """
    from pipeline.document import DocumentReader
    from pipeline.engines import registry
    from pipeline.engines.base import Streaming

    if path.is_dir():
        raise NotADocumentError("it is a folder", file=path, remedy="`ocrd batch` reads what is in folders")
    engine = registry.create(settings.engine, settings)
    failures: list[OcrdError] = []
    passwords = () if password is None else (password,)
    try:
        with DocumentReader(path, settings, engine, passwords) as reader:
            numbers = flags.page_numbers(pages, reader.info.pages)
            if live and output != "json" and isinstance(engine, Streaming):
                _show_live(reader, numbers, failures)
            else:
                page_output.write(_read_pages(reader, numbers, failures), output)
    finally:
        engine.close()
    return _exit_code(failures)


def _read_pages(
    reader: DocumentReader, numbers: Sequence[int], failures: list[OcrdError]
) -> Iterator[PageReading | FailedPage]:
    from storage.results import FailedPage

    for number in numbers:
        try:
            yield reader.read_page(number)
        except OcrdError as error:
            _note(error, reader, number, failures)
            yield FailedPage(number, error.code, error.message, error.remedy)


def _show_live(reader: DocumentReader, numbers: Sequence[int], failures: list[OcrdError]) -> None:
    for number in numbers:
        try:
            pieces = reader.stream(reader.prepare(number))
            while True:
                console.write_piece(next(pieces).text)
        except StopIteration as end:
            reading: PageReading = end.value
            console.write_piece("\n")
            console.remark(_took(reading))
        except OcrdError as error:
            _note(error, reader, number, failures)


def _took(reading: PageReading) -> str:
    """Tokens per second, passes and accepted length of a page, for a person."""
    decode = reading.decode
    if decode is None or not decode.target_passes:
        return f"page {reading.page}: no model was needed ({reading.source})"
    seconds = reading.seconds.get("decode", 0.0)
    speed = decode.tokens / seconds if seconds else 0.0
    return (
        f"page {reading.page}: {decode.tokens} tokens, {speed:.1f} tokens/s, {decode.target_passes} passes, "
        f"{decode.accepted / decode.target_passes:.2f} draft tokens accepted a pass"
    )


def _note(error: OcrdError, reader: DocumentReader, number: int, failures: list[OcrdError]) -> None:
    error.file, error.page = error.file or reader.path, error.page or number
    console.complain(error)
    failures.append(error)


def _exit_code(failures: Sequence[OcrdError]) -> ExitCode:
    codes = {failure.exit_code for failure in failures}
    return ExitCode.OK if not codes else codes.pop() if len(codes) == 1 else ExitCode.MIXED
