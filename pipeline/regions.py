"""Cut a page into the pictures a region model reads: lines and pieces of lines, or whole blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline.engines.base import PageImage
from storage.records import Box, Direction, Line, Word

if TYPE_CHECKING:
    from PIL import Image

MARGIN_PX = 10  # white beside a line, as the tiny model was trained
BLOCK_MARGIN_PT = 6.0  # around a block: letters reach out of boxes by a little
TILE_PX = 28  # its pictures are multiples of this


@dataclass(frozen=True, slots=True)
class LinePiece:
    """Some words of one line, short enough for the model; `line` is the line's index on the page."""

    line: int
    words: tuple[Word, ...]
    box: Box  # page points


def line_pieces(lines: Sequence[Line], *, text_height_px: int, width_px: int) -> Iterator[LinePiece]:
    """Cut each line at word gaps so that no piece is wider than `width_px` once its text is `text_height_px` high."""
    for index, line in enumerate(lines):
        words = line.words or (Word(line.text, line.box),)
        size = line.size_pt or (line.box[3] - line.box[1])
        widest = (width_px - 2 * MARGIN_PX) * size / text_height_px  # in points
        group: list[Word] = []
        for word in words:
            if group and word.box[2] - group[0].box[0] > widest:
                yield _piece(index, group, line)
                group = []
            group.append(word)
        if group:
            yield _piece(index, group, line)


def _piece(index: int, words: Sequence[Word], line: Line) -> LinePiece:
    left, right = min(w.box[0] for w in words), max(w.box[2] for w in words)
    return LinePiece(index, tuple(words), (left, line.box[1], right, line.box[3]))


def line_picture(page: PageImage, piece: LinePiece, line: Line, text_height_px: int) -> Image.Image:
    """The piece as RGB: text `text_height_px` high, dark on white, on a canvas of whole tiles."""
    from PIL import Image, ImageOps

    size = line.size_pt or (line.box[3] - line.box[1])
    scale = text_height_px / (size * page.scale_y)
    cut = page.cut(piece.box, (0.15 * size, 0.12 * size)).convert("L")
    cut = ImageOps.autocontrast(cut, cutoff=(0, 25))  # paper to white, whatever its tint
    width, height = max(1, round(cut.width * scale)), max(1, round(cut.height * scale))
    cut = cut.resize((width, height), Image.Resampling.LANCZOS)
    canvas = Image.new("L", (_tiles(width + 2 * MARGIN_PX), _tiles(height)), 255)
    canvas.paste(cut, (MARGIN_PX, (canvas.height - height) // 2))
    return canvas.convert("RGB")


def _tiles(pixels: int) -> int:
    return -(-pixels // TILE_PX) * TILE_PX


def crop(page: PageImage, box: Box) -> Image.Image:
    """The part of the page under a block's box (points), with some paper around it."""
    return page.cut(box, (BLOCK_MARGIN_PT, BLOCK_MARGIN_PT))


def with_text(line: Line, pieces: Sequence[tuple[LinePiece, str]]) -> Line:
    """`line` saying what the model read in its pieces; words take over the boxes of those they stand for."""
    words: list[Word] = []
    for piece, text in pieces:
        words += _words(text.split(), piece)
    text = " ".join(word.text for word in words)
    return replace(line, text=text, words=tuple(words), confidence=None, direction=Direction.LTR)


def _words(texts: Sequence[str], piece: LinePiece) -> list[Word]:
    if len(texts) == len(piece.words):
        return [Word(text, word.box) for text, word in zip(texts, piece.words, strict=True)]
    left, top, right, bottom = piece.box  # other words than the draft's: share the width by their lengths
    total = sum(len(text) for text in texts) + max(0, len(texts) - 1)
    words, at = [], 0
    for text in texts:
        start = left + (right - left) * at / total
        end = left + (right - left) * (at + len(text)) / total
        words.append(Word(text, (start, top, end, bottom)))
        at += len(text) + 1
    return words
