"""`ocrd read`: one file to standard output, without library, queue or workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import console, page_output
from daemon.commands import flags
from storage.errors import ExitCode, OcrdError

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
) -> ExitCode:
    """Read the pages (as in `2-4,7`) and print them; a page that fails is reported, the others are printed.

    Raises: the input errors of `storage.errors` where the file as a whole cannot be read.
    """
    from pipeline.document import DocumentReader
    from pipeline.engines import registry

    engine = registry.create(settings.engine, settings)
    failures: list[OcrdError] = []
    passwords = () if password is None else (password,)
    try:
        with DocumentReader(path, settings, engine, passwords) as reader:
            numbers = flags.page_numbers(pages, reader.info.pages)
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
            error.file, error.page = error.file or reader.path, error.page or number
            console.complain(error)
            failures.append(error)
            yield FailedPage(number, error.code, error.message, error.remedy)


def _exit_code(failures: Sequence[OcrdError]) -> ExitCode:
    codes = {failure.exit_code for failure in failures}
    return ExitCode.OK if not codes else codes.pop() if len(codes) == 1 else ExitCode.MIXED
