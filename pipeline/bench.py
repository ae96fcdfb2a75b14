"""Accuracy and speed of engines on pages whose text is known, beside `ocrmypdf --sidecar` on the same pixels.

Every page is rasterised once and kept as an image without text; each engine gets that image and its lines go
through `structure`, as in a document. Speed is measured twice, by the clock and in processor seconds, since only
the latter means something on a machine that does other work at the same time.
"""

from __future__ import annotations

import csv
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cer import character_error_rate
from storage.errors import SettingsError

if TYPE_CHECKING:
    from pipeline.engines.base import Engine, PageImage
    from storage.settings import Settings

OCRMYPDF = "ocrmypdf"
ENGINES = ("tesseract", "rapidocr", "classic", OCRMYPDF)


@dataclass(frozen=True, slots=True)
class TruePage:
    """A page of a file, and the file that holds its text."""

    file: Path
    page: int  # from 1
    truth: Path

    @property
    def name(self) -> str:
        """File and page, as shown."""
        return f"{self.file.name}:{self.page}"


@dataclass(frozen=True, slots=True)
class Score:
    """How an engine did on a page."""

    page: str
    truth: str
    cer: float
    seconds: float  # by the clock
    cpu_seconds: float
    confidence: float | None = None
    error: str | None = None


@dataclass(slots=True)
class Result:
    """How an engine did on all pages."""

    engine: str
    version: str
    scores: list[Score] = field(default_factory=list)

    @property
    def mean_cer(self) -> float:
        """Mean over pages."""
        return _mean(score.cer for score in self.scores)

    @property
    def mean_cer_of_texts(self) -> float:
        """Mean over distinct texts: pages that show the same text (nine do) weigh as one."""
        texts = {score.truth for score in self.scores}
        return _mean(_mean(s.cer for s in self.scores if s.truth == text) for text in texts)

    @property
    def pages_per_min(self) -> float:
        """By the clock."""
        return 60 * len(self.scores) / max(1e-9, sum(score.seconds for score in self.scores))

    @property
    def pages_per_cpu_min(self) -> float:
        """Per minute of processor time."""
        return 60 * len(self.scores) / max(1e-9, sum(score.cpu_seconds for score in self.scores))


def true_pages(corpus: Path) -> list[TruePage]:
    """The pages listed in `GROUNDTRUTH/INDEX.tsv` of a corpus whose files are there.

    Raises: `SettingsError` without such a list.
    """
    index = corpus / "GROUNDTRUTH" / "INDEX.tsv"
    if not index.is_file():
        raise SettingsError(f"no list of true pages at {index}", remedy="name a corpus folder with --corpus")
    with index.open(encoding="utf-8", newline="") as rows:
        listed = [page for row in csv.DictReader(rows, delimiter="\t") for page in _pages_of(row, corpus)]
    return [page for page in listed if page.file.is_file()]


def _pages_of(row: dict[str, str], corpus: Path) -> Iterator[TruePage]:
    for part in row["files (page)"].split(","):
        name, _, span = part.strip().rpartition(":")
        first, _, last = span.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield TruePage(corpus / "files" / name, number, corpus / "GROUNDTRUTH" / row["gt"])


def measure(
    pages: Sequence[TruePage],
    engines: Sequence[str],
    settings: Settings,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Each engine's result on the pages, in the order given. `tell` gets a line per page read.

    `ocrmypdf` is left out where there is no such command.
    Raises: as the engines do when they cannot start; a page an engine fails on counts as wrong from end to end.
    """
    with tempfile.TemporaryDirectory(prefix="ocrd-bench-") as folder, ExitStack() as opened:
        readers: list[tuple[Read, Result]] = []
        for name in engines:
            reader = _reader(name, settings, Path(folder))
            if reader is None:
                tell(f"{name}: not installed, left out")
                continue
            read, version = opened.enter_context(reader)
            read(_image_of(pages[0], settings))  # loads models and warms caches; a daemon does this once
            readers.append((read, Result(name, version)))
        # Page by page, so that whatever else the machine does slows all engines alike.
        for page in pages:
            image = _image_of(page, settings)
            for read, result in readers:
                result.scores.append(_score(page, image, read))
            tell(f"{page.name}: " + ", ".join(f"{r.engine} {_cell(r.scores[-1])}" for _, r in readers))
    return [result for _, result in readers]


Read = Callable[["PageImage"], tuple[str, float | None]]


def _image_of(page: TruePage, settings: Settings) -> PageImage:
    from pipeline.rasterise import rasterise
    from pipeline.source import open_source

    with (
        open_source(page.file, max_image_pixels=settings.max_image_pixels) as source,
        source.page(page.page) as one,
    ):
        return rasterise(one, dpi=settings.dpi, max_pixels=settings.max_pixels)


def _score(page: TruePage, image: PageImage, read: Read) -> Score:
    truth = page.truth.read_text(encoding="utf-8")
    clock, processor = time.perf_counter(), _processor_seconds()
    text, confidence, failure = "", None, None
    try:
        text, confidence = read(image)
    except Exception as error:  # a failure is a result here, whoever's it is
        failure = f"{type(error).__name__}: {error}"
    return Score(
        page.name,
        page.truth.name,
        round(character_error_rate(truth, text), 4),
        round(time.perf_counter() - clock, 3),
        round(_processor_seconds() - processor, 3),
        confidence,
        failure,
    )


def _processor_seconds() -> float:
    """Of this process and the children it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _reader(name: str, settings: Settings, folder: Path) -> AbstractContextManager[tuple[Read, str]] | None:
    if name != OCRMYPDF:
        return _engine_reader(name, settings)
    command = shutil.which(OCRMYPDF)
    return None if command is None else _ocrmypdf_reader(command, folder)


@contextmanager
def _engine_reader(name: str, settings: Settings) -> Iterator[tuple[Read, str]]:
    from pipeline.engines import registry

    engine: Engine = registry.create(name, settings)

    def read(image: PageImage) -> tuple[str, float | None]:
        from pipeline.structure import structure

        found = engine.read(image)
        blocks = found.blocks if found.blocks is not None else structure(found.lines) if found.lines else ()
        return "\n\n".join(block.text for block in blocks), found.confidence

    try:
        yield read, engine.version()
    finally:
        engine.close()


@contextmanager
def _ocrmypdf_reader(command: str, folder: Path) -> Iterator[tuple[Read, str]]:
    picture, sidecar, pdf = folder / "page.png", folder / "page.txt", folder / "page.pdf"

    def read(image: PageImage) -> tuple[str, float | None]:
        sidecar.unlink(missing_ok=True)
        image.image.save(picture, compress_level=1)
        options: list[str | Path] = [
            "--sidecar",
            sidecar,
            "--image-dpi",
            str(max(1, round(image.dpi))),
            "--jobs",
            "1",
            "--quiet",
        ]
        subprocess.run(
            [command, *options, picture, pdf], check=True, env={**os.environ, "OMP_THREAD_LIMIT": "1"}
        )
        return sidecar.read_text(encoding="utf-8"), None

    told = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    yield read, f"ocrmypdf {told.stdout.strip()}"


def as_json(results: Sequence[Result]) -> dict[str, object]:
    """Results as plain data."""
    return {
        "engines": [
            {
                "engine": result.engine,
                "version": result.version,
                "mean_cer": round(result.mean_cer, 4),
                "mean_cer_of_texts": round(result.mean_cer_of_texts, 4),
                "pages_per_min": round(result.pages_per_min, 1),
                "pages_per_cpu_min": round(result.pages_per_cpu_min, 1),
                "pages": [asdict(score) for score in result.scores],
            }
            for result in results
        ]
    }


def as_table(results: Sequence[Result]) -> str:
    """Results as a Markdown table: a row per page, then means and rates."""
    rows = [["page", *(result.engine for result in results)]]
    if results:
        for number, score in enumerate(results[0].scores):
            rows.append([score.page, *(_cell(result.scores[number]) for result in results)])
    rows.append(["mean error, pages", *(f"{result.mean_cer:.4f}" for result in results)])
    rows.append(["mean error, distinct texts", *(f"{result.mean_cer_of_texts:.4f}" for result in results)])
    rows.append(["pages per minute", *(f"{result.pages_per_min:.1f}" for result in results)])
    rows.append(["pages per processor minute", *(f"{result.pages_per_cpu_min:.1f}" for result in results)])
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|---|" + "---:|" * len(results)
    return "\n".join([head, rule, *body])


def _cell(score: Score) -> str:
    return "failed" if score.error else f"{score.cer:.3f} ({score.cpu_seconds:.1f} s)"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
