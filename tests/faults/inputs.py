"""Thirty small documents of every kind, the same for the same seed: what the faults are injected over."""

from __future__ import annotations

import io
import random
from pathlib import Path

from tests.pdf_factory import Page, pdf, picture, rule, scan, text

WORDS = [
    "harbour",
    "ledger",
    "receipt",
    "window",
    "garden",
    "copper",
    "morning",
    "letter",
    "engine",
    "paper",
    "silver",
    "account",
    "river",
    "station",
]
EMPTY, BROKEN, LOCKED = "empty.pdf", "broken.pdf", "locked.pdf"
ENDS = {EMPTY: "failed", BROKEN: "failed", LOCKED: "needs_password"}  # all others are done


FEW = ("report-00", "report-01", "scan-0", "photo 0", "several", "phone", "naïve", "broken", "locked")


def make(folder: Path, seed: int = 0, *, few: bool = False) -> dict[str, int]:
    """Write the documents below `folder`, or ten of them; returns name → pages (0 where it cannot be opened)."""
    rng = random.Random(seed)
    files: dict[str, tuple[bytes, int]] = {}
    for number in range(10):  # with a text layer
        pages = rng.randint(1, 5)
        files[f"born/report-{number:02}.pdf"] = (pdf(*(_printed(rng) for _ in range(pages))), pages)
    for number in range(5):  # pictures of pages
        pages = rng.randint(1, 3)
        files[f"scans/scan-{number}.pdf"] = (pdf(*(_scanned(rng) for _ in range(pages))), pages)
    for number, kind in enumerate(("PNG", "JPEG", "WEBP", "BMP", "GIF", "PNG", "JPEG")):
        files[f"pictures/photo {number}.{kind.lower()}"] = (_picture(rng, kind), 1)
    files["pictures/several.tiff"] = (_tiff(rng, 3), 3)
    files["pictures/phone.heic"] = (_heic(rng), 1)
    files["deep/er/and deeper/naïve ☃ name.pdf"] = (pdf(_printed(rng), _scanned(rng)), 2)
    files["copy of report-00.pdf"] = files["born/report-00.pdf"]
    files["blank.pdf"] = (pdf(Page("")), 1)
    files[EMPTY] = (b"", 0)
    files[BROKEN] = (b"%PDF-1.7\n" + rng.randbytes(3000), 0)
    files[LOCKED] = ((Path(__file__).parent.parent / "data" / "encrypted.pdf").read_bytes(), 0)
    if few:
        files = {name: file for name, file in files.items() if any(part in name for part in FEW)}
    for name, (data, _) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return {name: pages for name, (_, pages) in files.items()}


def _sentence(rng: random.Random, words: int = 9) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def _printed(rng: random.Random) -> Page:
    lines = "".join(text(_sentence(rng), 72, 720 - 16 * row) for row in range(rng.randint(4, 25)))
    return Page(lines + rule(72, 60, 540, 60))


def _scanned(rng: random.Random) -> Page:
    lines = [(_sentence(rng, 6), 60.0, 700.0 - 24 * row, 12.0) for row in range(8)]
    return Page(picture(0, 0, 0, 612, 792), images=[scan(lines, dpi=60)])


def _page_image(rng: random.Random, dpi: float = 40):  # type: ignore[no-untyped-def]  # Pillow's, imported late
    return scan([(_sentence(rng, 5), 60.0, 700.0 - 30 * row, 14.0) for row in range(6)], dpi=dpi)


def _picture(rng: random.Random, kind: str) -> bytes:
    data = io.BytesIO()
    _page_image(rng).save(data, kind)
    return data.getvalue()


def _tiff(rng: random.Random, pages: int) -> bytes:
    first, *others = [_page_image(rng) for _ in range(pages)]
    data = io.BytesIO()
    first.save(data, "TIFF", save_all=True, append_images=others, compression="tiff_deflate")
    return data.getvalue()


def _heic(rng: random.Random) -> bytes:
    import pillow_heif

    data = io.BytesIO()
    pillow_heif.from_pillow(_page_image(rng).convert("RGB")).save(data, quality=60)
    return data.getvalue()
