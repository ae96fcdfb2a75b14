"""Text onto a picture, with the centre of every character: lines, blocks, small pages with headings.

Sizes are given in pixels of the finished picture; the canvas may be drawn larger or smaller (`scale`) and resampled
afterwards, as regions cut from scans are. The centres are always in pixels of the finished picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from PIL import Image, ImageDraw

from tools.tiny.fonts import Face, FontSet, face
from tools.tiny.recipe import Kind, Looks

Centre = tuple[float, float]
_ASCENT, _DESCENT = 0.78, 0.25  # of the size, room above and below the baseline
_LINE = _ASCENT + _DESCENT
HEADING = "# "  # written before a heading, drawn nowhere


@dataclass(frozen=True, slots=True)
class Ink:
    """Grey values of letters and paper."""

    dark: int
    light: int


@dataclass(slots=True)
class Canvas:
    """A picture being drawn: `text` is what stands on it so far, `centres` has one (x, y) per character of it."""

    width: int  # of the finished picture
    height: int
    scale: float
    ink: Ink
    pieces: list[str] = field(default_factory=list)
    centres: list[Centre] = field(default_factory=list)
    image: Image.Image = field(init=False)
    _draw: ImageDraw.ImageDraw = field(init=False)

    def __post_init__(self) -> None:
        size = max(1, round(self.width * self.scale)), max(1, round(self.height * self.scale))
        self.image = Image.new("L", size, self.ink.light)
        self._draw = ImageDraw.Draw(self.image)

    @property
    def text(self) -> str:
        """Everything written, lines parted by line ends."""
        return "".join(self.pieces)

    def write(self, text: str, look: Look, x: float, baseline: float, *, heading: bool = False) -> None:
        """One line at `x`, `baseline`; after another one a line end comes first, placed where that one ended."""
        if self.pieces:
            self._note("\n", [self.centres[-1]])
        drawn = look.face(self.scale)
        at = (x * self.scale, baseline * self.scale)
        self._draw.text(at, text, font=drawn.font, fill=self.ink.dark, anchor="ls")
        centres = list(_centres(text, drawn, at, self.scale))
        if heading:
            self._note(HEADING, [centres[0]] * len(HEADING))
        self._note(text, centres)

    def _note(self, text: str, centres: list[Centre]) -> None:
        self.pieces.append(text)
        self.centres.extend(centres)


def _centres(text: str, drawn: Face, at: Centre, scale: float) -> list[Centre]:
    """Centre of each character: half its advance, half the height of an x; advances stretched to the true length."""
    stretch = drawn.font.getlength(text) / (drawn.width(text) or 1.0)
    x, y = at
    found = []
    for character in text:
        advance = drawn.advance[character] * stretch
        found.append(((x + advance / 2) / scale, (y - drawn.x_height / 2) / scale))
        x += advance
    return found


@dataclass(frozen=True, slots=True)
class Look:
    """A font and its size on the finished picture."""

    path: str
    size_px: float

    def face(self, scale: float) -> Face:
        """The face to draw with on a canvas of that scale."""
        return face(self.path, max(4, round(self.size_px * scale)))


def draw(
    rng: Random, canvas: Canvas, kind: Kind, words: list[str], fonts: FontSet, looks: Looks, held: bool
) -> None:
    """Fill the canvas with `words` (consumed from the front) as a line, a block or a page."""
    sizes = looks.page_text_px if kind is Kind.PAGE else looks.text_px
    look = Look(_pick(rng, fonts, held), rng.randint(*sizes))
    if kind is Kind.LINE:
        _draw_line(rng, canvas, words, replace(look, size_px=min(look.size_px, canvas.height / _LINE)))
    else:
        _Column(rng, canvas, look, kind, fonts.held_bold if held else fonts.bold, looks).fill(words)


def _pick(rng: Random, fonts: FontSet, held: bool) -> str:
    if held:
        return rng.choice(fonts.held)
    which = rng.random()
    group = fonts.regular if which < 0.72 else fonts.bold if which < 0.87 else fonts.italic
    return rng.choice(group)


def _draw_line(rng: Random, canvas: Canvas, words: list[str], look: Look) -> None:
    """One line anywhere on the canvas where ascenders and descenders fit; a quarter have three words or fewer."""
    margin = rng.randrange(2, 14)
    width = canvas.width - margin - 2
    if rng.random() < 0.25:
        del words[rng.randrange(1, 4) :]
    drawn = look.face(canvas.scale)
    text = fit(words, drawn, width * canvas.scale) or "ab"
    slack = max(0.0, canvas.width - margin - drawn.font.getlength(text) / canvas.scale - 2)
    x = margin if rng.random() < 0.6 else margin + rng.random() * slack
    top, bottom = int(look.size_px * _ASCENT), canvas.height - int(look.size_px * _DESCENT)
    baseline = rng.randint(top, bottom) if bottom > top else (top + bottom) // 2
    canvas.write(text, look, x, baseline)


def fit(words: list[str], drawn: Face, width: float) -> str:
    """Take words from the front while they fit into `width` (pixels of the face); "" when the first does not."""
    taken: list[str] = []
    used = 0.0
    while words:
        needed = drawn.width(words[0]) + (drawn.advance[" "] if taken else 0.0)
        if used + needed > width:
            break
        taken.append(words.pop(0))
        used += needed
    return " ".join(taken)


def cut(words: list[str], drawn: Face, width: float) -> str:
    """As much of the first word as fits (at least a character); the rest of it is dropped."""
    word, length = words.pop(0), 1
    while length < len(word) and drawn.width(word[: length + 1]) <= width:
        length += 1
    return word[:length]


class _Column:
    """A column of lines with paragraphs and headings, from the top until the canvas or the words end."""

    def __init__(
        self, rng: Random, canvas: Canvas, look: Look, kind: Kind, bold: tuple[str, ...], looks: Looks
    ) -> None:
        is_page = kind is Kind.PAGE
        self.rng, self.canvas, self.look, self.bold, self.looks = rng, canvas, look, bold, looks
        self.pitch = max(looks.least_pitch_px, look.size_px * rng.uniform(1.15, 1.55))
        self.left = rng.randrange(3, 45 if is_page else 30)
        self.width = canvas.width - self.left - rng.randrange(2, 24)
        self.y = rng.uniform(3, 36 if is_page else 18)
        self.has_paragraphs = rng.random() < (0.9 if is_page else 0.45)
        self.heading_next = rng.random() < (0.75 if is_page else 0.25)
        self.is_ragged = rng.random() < 0.15
        self.most_lines = 99 if rng.random() < 0.7 else rng.randrange(1, 7)
        self.until_break = rng.randrange(3, 12)

    def fill(self, words: list[str]) -> None:
        lines = 0
        while words and lines < self.most_lines:
            if self.heading_next:
                lines += self._heading(words)
                self.heading_next = False
                continue
            if not self._line(words):
                break
            lines += 1

    def _heading(self, words: list[str]) -> int:
        """A heading of up to five words, bold or much larger; returns how many lines it took (0: no room)."""
        rng, size = self.rng, self.look.size_px
        height = min(self.looks.heading_px, int(size * rng.uniform(1.3, 1.8)))
        is_plain = rng.random() < 0.25 and height > size * 1.5
        look = Look(self.look.path if is_plain else rng.choice(self.bold), height)
        count = rng.randrange(1, 6)
        head, rest = words[:count], words[count:]
        text = fit(head, look.face(self.canvas.scale), self.width * self.canvas.scale)
        words[:] = head + rest
        baseline = self.y + height * 0.85
        if not text or baseline + height * 0.3 >= self.canvas.height:
            return 0
        self.canvas.write(text, look, self.left, baseline, heading=True)
        self.y = baseline + height * 0.35 + rng.uniform(0, 10)
        self.until_break = rng.randrange(3, 12)
        return 1

    def _line(self, words: list[str]) -> bool:
        """The next line of text; False where the canvas ends."""
        rng, size = self.rng, self.look.size_px
        baseline = self.y + max(self.pitch * 0.75, size * 0.85)
        if baseline + size * 0.28 > self.canvas.height:
            return False
        drawn = self.look.face(self.canvas.scale)
        width = self.width * self.canvas.scale
        text = fit(words, drawn, width * (rng.uniform(0.3, 1) if self.is_ragged else 1)) or cut(
            words, drawn, width
        )
        if self.has_paragraphs and self.until_break == 0:  # the last line of a paragraph is short
            parts = text.split()
            text = " ".join(parts[: rng.randrange(1, len(parts) + 1)])
        self.canvas.write(text, self.look, self.left, baseline)
        self.y += self.pitch
        if self.has_paragraphs:
            self._end_line()
        return True

    def _end_line(self) -> None:
        self.until_break -= 1
        if self.until_break < 0:
            self.y += self.rng.uniform(6, 24)
            self.until_break = self.rng.randrange(2, 9)
            self.heading_next = self.rng.random() < 0.15
