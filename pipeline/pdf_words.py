"""Characters of a PDF page to words and lines of text, in the order they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline import bidi
from pipeline.pdf_chars import Bools, Characters, Floats, Ints, Style
from pipeline.pdf_codes import clean, compose
from pipeline.pdf_lines import VERTICAL, Frame, frames, is_cjk
from pipeline.pdf_rtl import rtl_words
from storage.records import Box, Direction, Line, Word

# Gaps in em that part words where the file has no space characters. Letters of one word stand close, or, in
# letter-spaced text, all equally apart: the gap counts beyond the line's median.
_WORD_GAP = 0.15
_WORD_GAP_WITH_SPACES = 0.22  # where the line has space characters, a smaller gap is kerning
_WORD_GAP_TRACKED = 0.35  # beyond this limit the line is letter-spaced, and PDFium sees spaces everywhere
_WORD_GAP_SEEN = 0.05  # where PDFium sees a space: boxes of italics reach over it
_CJK_GAP = 0.6
_TRACKING = (0.02, 0.5)  # a median gap between letters that counts as letter-spacing
_SAME_PLACE = 0.2  # em; a character printed twice for boldness is at most so far apart

# Accents that old TeX fonts draw as a glyph of their own over the letter, and their combining forms.
_ACCENTS = {
    0x60: "\u0300", 0xB4: "\u0301", 0x2C6: "\u0302", 0x5E: "\u0302", 0x2DC: "\u0303", 0xAF: "\u0304",
    0x2D8: "\u0306", 0x2D9: "\u0307", 0xA8: "\u0308", 0x2DA: "\u030a", 0x2DD: "\u030b", 0x2C7: "\u030c",
    0xB8: "\u0327", 0x2DB: "\u0328",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LayerLine:
    """A line of a text layer and what the verdict on the layer needs to know of it."""

    line: Line
    first: int  # position of its first character in the file
    style: Style  # of most of its characters


def to_lines(characters: Characters) -> list[LayerLine]:
    """The lines of a page in file order; words without white space, control and private-use characters."""
    codes = clean(characters.codes)
    kept = (codes != 0) & ~_said_twice(characters)
    characters = replace(_select(characters, kept), codes=codes[kept])
    rtl_page = _is_rtl_page(characters.codes)
    found: list[LayerLine] = []
    for frame in frames(characters, characters.codes == 32):
        found += _frame_lines(frame, characters, rtl_page)
    found.sort(key=lambda line: line.first)
    return _with_brackets_turned(found)


def _said_twice(characters: Characters) -> Bools:
    """(N,) characters PDFium adds at the place of another: an /ActualText beside the text that it stands for."""
    extra = np.zeros(len(characters), dtype=bool)
    same = (characters.boxes[1:] == characters.boxes[:-1]).all(axis=1)
    same &= characters.object_of[1:] == characters.object_of[:-1]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if last - first < 3:  # the pieces of a ligature
            continue
        there = (characters.boxes == characters.boxes[first]).all(axis=1)
        there &= characters.object_of == characters.object_of[first]
        extra[first : last + 1] = int(there.sum()) > last - first + 1
    return extra


def _with_brackets_turned(lines: list[LayerLine]) -> list[LayerLine]:
    """Right-to-left lines with brackets the way they are read.

    Whether a bracket's code means its shape or its role is up to the program that made the file, and PDFium turns
    some: what makes more pairs on the page is right.
    """
    rtl = [line.line.text for line in lines if line.line.direction is Direction.RTL]
    as_is = sum(map(bidi.matched_brackets, rtl))
    if not rtl or sum(bidi.matched_brackets(bidi.mirror(text)) for text in rtl) <= as_is:
        return lines
    return [
        replace(found, line=_mirrored(found.line)) if found.line.direction is Direction.RTL else found
        for found in lines
    ]


def _mirrored(line: Line) -> Line:
    words = tuple(replace(word, text=bidi.mirror(word.text)) for word in line.words)
    return replace(line, text=bidi.mirror(line.text), words=words)


def _select(characters: Characters, kept: Bools) -> Characters:
    return replace(
        characters,
        codes=characters.codes[kept],
        boxes=characters.boxes[kept],
        origins=characters.origins[kept],
        style_of=characters.style_of[kept],
        object_of=characters.object_of[kept],
        spaced=characters.spaced[kept],
    )


def _is_rtl_page(codes: npt.NDArray[np.uint32]) -> bool:
    if not _may_be_rtl(codes).any():
        return False
    rtl, ltr = bidi.strong_counts("".join(map(chr, codes[(codes < 0xD800) | (codes > 0xDFFF)].tolist())))
    return rtl > ltr


def _may_be_rtl(codes: npt.NDArray[np.uint32]) -> Bools:
    return np.asarray(
        ((codes >= 0x590) & (codes <= 0x8FF))
        | ((codes >= 0xFB1D) & (codes <= 0xFDFF))
        | ((codes >= 0xFE70) & (codes <= 0xFEFC))
        | ((codes >= 0x10800) & (codes <= 0x10FFF))
        | ((codes >= 0x1E800) & (codes <= 0x1EFFF))
    )


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The characters of a frame's lines, sorted by line and then by place along it, N of them."""

    index: Ints  # (N,) into the page's characters
    codes: npt.NDArray[np.uint32]
    start: Floats
    end: Floats
    base: Floats
    size: Floats
    line: Ints
    space: Bools
    spaced: Bools

    @classmethod
    def of(cls, frame: Frame, characters: Characters) -> _Sorted:
        mine = np.flatnonzero(frame.line >= 0)
        # The pieces of a ligature share their place: file order decides.
        order = mine[np.lexsort((mine, frame.start[mine], frame.line[mine]))]
        index = frame.index[order]
        codes = characters.codes[index]
        found = cls(
            index,
            codes,
            frame.start[order],
            frame.end[order],
            frame.base[order],
            frame.size[order],
            frame.line[order],
            codes == 32,
            characters.spaced[index],
        )
        return found._without_overprints(characters.object_of[index])

    def _without_overprints(self, objects: Ints) -> _Sorted:
        """Leaves out a character printed again, a hair's breadth away, by another text object: fake bold."""
        again = (self.codes[1:] == self.codes[:-1]) & (self.line[1:] == self.line[:-1]) & ~self.space[1:]
        again &= objects[1:] != objects[:-1]
        again &= np.abs(np.diff(self.start)) < _SAME_PLACE * self.size[1:]
        again &= np.abs(np.diff(self.base)) < _SAME_PLACE * self.size[1:]
        if not again.any():
            return self
        kept = np.concatenate(([True], ~again))
        return _Sorted(*(getattr(self, name)[kept] for name in self.__slots__))


def _frame_lines(frame: Frame, characters: Characters, rtl_page: bool) -> Iterator[LayerLine]:
    chars = _Sorted.of(frame, characters)
    if not len(chars.codes):
        return
    firsts = np.flatnonzero(np.diff(chars.line, prepend=-2))
    ends = np.concatenate((firsts[1:], [len(chars.line)]))
    words = _Words.of(chars, characters.boxes[chars.index].round(2), firsts, ends)
    first_in_file = np.minimum.reduceat(chars.index, firsts).tolist()
    has_rtl = np.logical_or.reduceat(_may_be_rtl(chars.codes), firsts).tolist()
    styles = characters.style_of[chars.index]
    for first, end, rtl, place in zip(firsts.tolist(), ends.tolist(), has_rtl, first_in_file, strict=True):
        direction = Direction.TTB if frame.angle == VERTICAL else Direction.LTR
        if rtl and direction is Direction.LTR:
            rtl = rtl_page or _mostly_rtl(words.text[first:end])
            direction = Direction.RTL if rtl else Direction.LTR
            found = words.reordered(first, end, rtl=rtl)
        else:
            found = words.between(first, end)
        if found:
            style = characters.styles[int(np.bincount(styles[first:end]).argmax())]
            line = _line(found, style, direction)
            if frame.angle != VERTICAL:
                line = replace(line, angle=frame.angle)
            yield LayerLine(line, place, style)


def _line(words: list[Word], style: Style, direction: Direction) -> Line:
    boxes = [word.box for word in words]
    return Line(
        text=" ".join(word.text for word in words),
        box=_union(boxes),
        words=tuple(words),
        size_pt=style.size_pt,
        direction=direction,
        bold=style.bold,
        italic=style.italic,
        mono=style.mono,
    )


def _union(boxes: list[Box]) -> Box:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return (min(lefts), min(tops), max(rights), max(bottoms))


def _mostly_rtl(text: str) -> bool:
    rtl, ltr = bidi.strong_counts(text)
    return rtl >= ltr > 0 or (rtl > 0 and ltr == 0)


def _word_breaks(chars: _Sorted, firsts: Ints, ends: Ints) -> Bools:
    """(N,) whether a word, or a space, begins at this character."""
    breaks = np.ones(len(chars.codes), dtype=bool)
    small = np.minimum(chars.size[1:], chars.size[:-1])
    gap = (chars.start[1:] - chars.end[:-1]) / small
    limit = _gap_limits(chars, gap, firsts, ends)
    cjk = is_cjk(chars.codes)
    limit[chars.spaced[1:] & (limit < _WORD_GAP_TRACKED) & (np.diff(chars.index) > 0)] = _WORD_GAP_SEEN
    limit[cjk[1:] & cjk[:-1]] = _CJK_GAP
    breaks[1:] = (gap > limit) | chars.space[1:] | chars.space[:-1] | (chars.line[1:] != chars.line[:-1])
    # A thin space between CJK characters is spacing, no end of a word.
    thin = np.flatnonzero(chars.space[1:-1] & cjk[:-2] & cjk[2:]) + 1
    thin = thin[(chars.start[thin + 1] - chars.end[thin - 1]) < _CJK_GAP * chars.size[thin + 1]]
    breaks[thin] = breaks[thin + 1] = False
    return breaks


def _gap_limits(chars: _Sorted, gap: Floats, firsts: Ints, ends: Ints) -> Floats:
    """(N - 1,) the gap in em, after each character, that parts words."""
    spaced = np.logical_or.reduceat(chars.space, firsts)
    base = np.where(spaced, _WORD_GAP_WITH_SPACES, _WORD_GAP)
    beside_space = chars.space[1:] | chars.space[:-1]
    for i, (first, end) in enumerate(zip(firsts.tolist(), ends.tolist(), strict=True)):
        if end - first > 6:
            inner = gap[first : end - 1][~beside_space[first : end - 1]]
            usual = float(np.median(inner)) if len(inner) else 0.0
            base[i] += usual if _TRACKING[0] < usual < _TRACKING[1] else 0.0
    return np.repeat(base, ends - firsts)[:-1]


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a frame: where each begins and ends in the sorted characters, and its box."""

    chars: _Sorted
    boxes: Floats  # (N, 4) of the characters
    text: str  # of all N characters
    starts: list[int]
    stops: list[int]
    word_boxes: list[Box]
    line_last: set[int]  # ends of lines
    first_word: dict[int, int]  # index of the first word of the line beginning at a character

    @classmethod
    def of(cls, chars: _Sorted, boxes: Floats, firsts: Ints, ends: Ints) -> _Words:
        starts = np.flatnonzero(_word_breaks(chars, firsts, ends))
        low = np.minimum.reduceat(boxes[:, :2], starts, axis=0)
        high = np.maximum.reduceat(boxes[:, 2:], starts, axis=0)
        text = chars.codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        return cls(
            chars=chars,
            boxes=boxes,
            text=text,
            starts=starts.tolist(),
            stops=[*starts[1:].tolist(), len(text)],
            word_boxes=[tuple(box) for box in np.concatenate((low, high), axis=1).tolist()],
            line_last=set(ends.tolist()),
            first_word=dict(zip(firsts.tolist(), np.searchsorted(starts, firsts).tolist(), strict=True)),
        )

    def between(self, first: int, end: int) -> list[Word]:
        """Words of the line of characters `first` to `end`, as they stand."""
        found = []
        for i in range(self.first_word[first], len(self.starts)):
            start, stop = self.starts[i], self.stops[i]
            if start >= end:
                break
            text = self.text[start:stop]
            if text == " ":
                continue
            if not text.isascii() or "`" in text or "^" in text:
                text = self._tidy(text, start, stop)
            if text:
                found.append(Word(text, self.word_boxes[i]))
        return found

    def reordered(self, first: int, end: int, *, rtl: bool) -> list[Word]:
        """Words of a line that holds right-to-left letters, in reading order."""
        chars, found = self.chars, []
        for text, members in rtl_words(
            self.text[first:end],
            chars.start[first:end].tolist(),
            chars.end[first:end].tolist(),
            chars.size[first:end].tolist(),
            rtl=rtl,
        ):
            boxes = self.boxes[[first + i for i in members]]
            tidy = compose(text.replace("\u00ad", ""))
            if tidy:
                box = (*boxes[:, :2].min(axis=0).tolist(), *boxes[:, 2:].max(axis=0).tolist())
                found.append(Word(tidy, box))
        return found

    def _tidy(self, text: str, start: int, stop: int) -> str:
        """Soft hyphens gone (but for the one that shows, at the line's end), accents on letters, ligatures apart."""
        if len(text) > 1 and any(ord(char) in _ACCENTS for char in text):
            text = self._with_accents(text, start)
        text = text.replace(" ", "")
        if "\u00ad" in text:
            shows = stop in self.line_last and text.endswith("\u00ad") and len(text) > 1
            text = text.replace("\u00ad", "") + ("-" if shows else "")
        return compose(text)

    def _with_accents(self, text: str, start: int) -> str:
        """`¨` drawn over `a` becomes `ä`: an accent whose middle lies on a letter belongs to it."""
        pieces = list(text)
        for i, char in enumerate(text):
            accent = _ACCENTS.get(ord(char))
            if accent is None:
                continue
            middle = (self.chars.start[start + i] + self.chars.end[start + i]) / 2
            for j in (i + 1, i - 1):
                over = 0 <= j < len(text) and text[j].isalpha()
                if over and self.chars.start[start + j] < middle < self.chars.end[start + j]:
                    pieces[j] += accent
                    pieces[i] = ""
                    break
        return "".join(pieces)
