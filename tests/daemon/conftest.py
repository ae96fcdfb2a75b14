"""Small files to read, and a library of one's own."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.settings import Settings

WORDS = "The quick brown fox jumps over the lazy dog and reads page"


def pdf_of(texts: list[str]) -> bytes:
    """A PDF with a page per text, each set in Helvetica, some lines long."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for text in texts:
        lines = " ".join(
            f"1 0 0 1 72 {760 - 20 * n} Tm ({part}) Tj" for n, part in enumerate(text.split("\n"))
        )
        content = f"BT /F1 12 Tf {lines} ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
        objects.append((page % len(objects) + " /Resources << /Font << /F1 3 0 R >> >> >>").encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    out, offsets = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return out.getvalue()


def png_of(seed: int, size: tuple[int, int] = (300, 400)) -> bytes:
    """A picture with ink on it that no other seed has."""
    from PIL import Image, ImageDraw

    image = Image.new("L", size, 255)
    draw = ImageDraw.Draw(image)
    for row in range(12):
        draw.rectangle((20, 20 + row * 30, 60 + (seed * 37 + row * 53) % 200, 32 + row * 30), fill=0)
    draw.text((20, 385), str(seed), fill=0)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


@pytest.fixture
def make_pdf() -> Callable[..., Path]:
    """Writes a PDF of so many pages; `salt` makes its content its own."""

    def make(path: Path, pages: int = 1, salt: str = "") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            pdf_of([f"{WORDS} {n} of {pages}\n{WORDS} {salt}\n{WORDS} again" for n in range(1, pages + 1)])
        )
        return path

    return make


@pytest.fixture
def make_png() -> Callable[..., Path]:
    """Writes a picture that needs an engine."""

    def make(path: Path, seed: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(seed))
        return path

    return make


@pytest.fixture
def settings(tmp_path: Path, database_path: Path) -> Settings:
    """Settings with a home and an output folder of the test's own, and the fake engine."""
    return Settings(home=database_path.parent, out=tmp_path / "out", engine="fake", workers=1)


@pytest.fixture
def conn(fresh_db: sqlite3.Connection) -> sqlite3.Connection:
    """The test's database."""
    return fresh_db
