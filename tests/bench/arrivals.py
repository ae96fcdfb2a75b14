"""A folder as people treat it: files of all kinds arrive, are copied, renamed and deleted, at random from a seed."""

from __future__ import annotations

import hashlib
import io
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.bench.house import page_lines, pdf_of
from tests.pdf_factory import Page, pdf, picture, scan

# What happens, and how often of a hundred.
SHARES = {"text": 42, "scan": 8, "bad": 10, "duplicate": 12, "rename": 16, "delete": 12}


class Arrivals:
    """Things that happen in `folder`, about as many files leaving as arriving once there are `population` of them."""

    def __init__(self, folder: Path, seed: int, population: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.population = population
        self.known: dict[Path, str] = {}  # path → SHA-256 of what was written there
        self.gone: list[Path] = []  # deleted, and not forgotten yet
        self.counts: Counter[str] = Counter()
        self._number = 0

    def happen(self) -> None:
        """One more thing."""
        kind = self.random.choices(list(SHARES), list(SHARES.values()))[0]
        if kind in ("duplicate", "rename", "delete") and not self.known:
            kind = "text"
        actions: dict[str, Callable[[], None]] = {
            "text": lambda: self._write(".pdf", self._text()),
            "scan": lambda: self._write(*self._scan()),
            "bad": lambda: self._write(".pdf", self._bad()),
            "duplicate": self._duplicate,
            "rename": self._rename,
            "delete": self._delete,
        }
        actions[kind]()
        self.counts[kind] += 1
        while len(self.known) > self.population:
            self._delete()
            self.counts["delete"] += 1

    def changed(self) -> list[Path]:
        """Files whose content is not what was written: there must be none."""
        return [
            path
            for path, digest in self.known.items()
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest
        ]

    def _text(self) -> bytes:
        first = self._next()
        pages = self.random.choice((1, 1, 1, 2, 3, 8))
        return pdf_of([page_lines(first * 10 + n, self.random.randint(10, 45)) for n in range(pages)])

    def _scan(self) -> tuple[str, bytes]:
        lines = [
            (line[:70], 60.0, 740.0 - 26 * n, 13.0) for n, line in enumerate(page_lines(self._next(), 12))
        ]
        image = scan(lines, dpi=self.random.choice((120, 150, 200)))
        if self.random.random() < 0.5:
            return ".pdf", pdf(Page(picture(0, 0, 0, 612, 792), images=[image]))
        data = io.BytesIO()
        image.save(data, self.random.choice(("PNG", "JPEG", "TIFF")))
        return self.random.choice((".png", ".jpg", ".tif")), data.getvalue()  # content decides, not the name

    def _bad(self) -> bytes:
        whole = self._text()
        return self.random.choice(
            (
                b"",
                b"%PDF-1.4\n%" + self.random.randbytes(400),
                whole[: len(whole) // 3],
                b"<html><body>no PDF %d</body></html>" % self._next(),
                b"\x89PNG\r\n\x1a\n" + self.random.randbytes(300),
            )
        )

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _write(self, suffix: str, data: bytes) -> None:
        path = self._free(suffix)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self.known[path] = hashlib.sha256(data).hexdigest()

    def _free(self, suffix: str) -> Path:
        return self.folder / f"box {self.random.randrange(6)}" / f"{self._next():06}{suffix}"

    def _duplicate(self) -> None:
        source = self._any()
        self._write(source.suffix, source.read_bytes())

    def _rename(self) -> None:
        source = self._any()
        target = self._free(source.suffix)
        target.parent.mkdir(exist_ok=True)
        self.known[target] = self.known.pop(source)
        source.rename(target)

    def _delete(self) -> None:
        path = self._any()
        path.unlink()
        del self.known[path]
        self.gone.append(path)

    def _any(self) -> Path:
        return self.random.choice(list(self.known))
