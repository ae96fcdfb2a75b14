"""Fonts to draw with: those of the shipped recipe where they are installed, else whatever is, else Pillow's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

from tools.tiny.charset import CHARACTERS


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PILLOW = "Pillow"  # its built-in font, Aileron Regular
DEBIAN_PACKAGES = _names(
    "fonts-dejavu fonts-liberation fonts-liberation2 fonts-freefont-ttf fonts-noto-core "
    "fonts-crosextra-carlito fonts-crosextra-caladea fonts-lmodern fonts-roboto fonts-open-sans "
    "fonts-lato fonts-texgyre fonts-urw-base35 fonts-linuxlibertine fonts-croscore fonts-noto-mono "
    "fonts-cantarell fonts-ebgaramond fonts-hack"
)
# File names without ending; those named twice are drawn twice as often.
REGULAR = _names(
    "DejaVuSans DejaVuSerif DejaVuSansMono DejaVuSansCondensed LiberationSans-Regular "
    "LiberationSans-Regular LiberationSerif-Regular LiberationSerif-Regular LiberationMono-Regular "
    "FreeSans FreeSerif FreeMono NotoSans-Regular Carlito-Regular Carlito-Regular Roboto-Regular "
    "Roboto-Medium OpenSans-Regular OpenSans-Semibold lmroman10-regular lmroman12-regular "
    "lmsans10-regular lmmono10-regular texgyrepagella-regular texgyreschola-regular texgyrebonum-regular "
    "texgyreadventor-regular texgyreheros-regular texgyretermes-regular texgyrecursor-regular "
    "NimbusRoman-Regular NimbusSans-Regular Cantarell-Regular EBGaramond12-Regular Hack-Regular "
    "RobotoCondensed-Regular NotoMono-Regular LiberationSansNarrow-Regular URWBookman-Light"
)
BOLD = _names(
    "DejaVuSans-Bold DejaVuSerif-Bold DejaVuSansMono-Bold LiberationSans-Bold LiberationSerif-Bold "
    "LiberationMono-Bold FreeSansBold FreeSerifBold NotoSans-Bold Carlito-Bold Roboto-Bold OpenSans-Bold "
    "lmroman10-bold lmsans10-bold texgyrepagella-bold texgyreschola-bold texgyreheros-bold "
    "texgyretermes-bold Cantarell-Bold Hack-Bold"
)
ITALIC = _names(
    "DejaVuSans-Oblique DejaVuSerif-Italic LiberationSans-Italic LiberationSerif-Italic FreeSansOblique "
    "FreeSerifItalic NotoSans-Italic Carlito-Italic Roboto-Italic OpenSans-Italic lmroman10-italic "
    "texgyrepagella-italic texgyretermes-italic texgyreheros-italic"
)
HELD = _names("Lato-Regular Lato-Medium NotoSerif-Regular LinLibertine_R Caladea-Regular LinBiolinum_R")
HELD_BOLD = _names("Lato-Bold NotoSerif-Bold LinLibertine_RB Caladea-Bold")
_ENOUGH = 8  # named regular fonts, below which others are taken as well
_FOLDERS = ("/usr/share/fonts", "/usr/share/texmf/fonts/opentype", "/Library/Fonts", "/System/Library/Fonts")
_SYMBOLS = ("symbol", "dingbat", "d050000l", "emoji", "fallback", "math", "z003", "icon", "awesome", "pua")


@dataclass(frozen=True, slots=True)
class FontSet:
    """Paths (or `PILLOW`) by use. `held` and `held_bold` are never trained on."""

    regular: tuple[str, ...]
    bold: tuple[str, ...]
    italic: tuple[str, ...]
    held: tuple[str, ...]
    held_bold: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Over the names, not the files: the same fonts at another place are the same."""
        groups = (self.regular, self.bold, self.italic, self.held, self.held_bold)
        names = "|".join(",".join(Path(path).stem for path in group) for group in groups)
        return hashlib.sha256(names.encode()).hexdigest()[:16]


class Face:
    """A font at a size: how wide each character is, how high an x."""

    def __init__(self, path: str, size_px: int) -> None:
        basic = ImageFont.Layout.BASIC  # no kerning pairs, the same advances everywhere
        self.font = (
            ImageFont.load_default(size_px)
            if path == PILLOW
            else ImageFont.truetype(path, size_px, layout_engine=basic)
        )
        self.advance = {c: self.font.getlength(c) for c in CHARACTERS if c != "\n"}
        self.x_height = -self.font.getbbox("x", anchor="ls")[1]

    def width(self, text: str) -> float:
        """Sum of the advances."""
        return sum(self.advance[character] for character in text)


@lru_cache(4096)
def face(path: str, size_px: int) -> Face:
    """The font at `path` (or `PILLOW`) in that size, opened once."""
    return Face(path, size_px)


def find(named: bool = True) -> FontSet:
    """The fonts of this machine, sorted by use.

    With `named` those of the shipped recipe come first; others fill up where fewer than eight are installed.
    """
    installed = {Path(path).stem: path for path in sorted(_installed(), reverse=True)}
    known = _named(installed) if named else FontSet((), (), (), (), ())
    if len(known.regular) >= _ENOUGH and known.held:
        return known
    return _any_installed(installed, known)


def _named(installed: dict[str, str]) -> FontSet:
    def there(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(installed[name] for name in names if name in installed)

    return FontSet(there(REGULAR), there(BOLD), there(ITALIC), there(HELD), there(HELD_BOLD))


def _any_installed(installed: dict[str, str], known: FontSet) -> FontSet:
    """Every Latin font by the style its file name tells; each sixth family, and Pillow's font, is held out."""
    usable = {name: path for name, path in sorted(installed.items()) if _draws_latin(name, path)}
    styles: dict[str, list[str]] = {"regular": [], "bold": [], "italic": []}
    held: dict[str, list[str]] = {"regular": [], "bold": [], "italic": []}
    named_held = {*known.held, *known.held_bold}
    for name, path in usable.items():
        group = held if _is_held(name) or path in named_held else styles
        group[_style(name)].append(path)
    regular = tuple(styles["regular"]) or (PILLOW,)
    return FontSet(
        regular,
        tuple(styles["bold"]) or regular,
        tuple(styles["italic"]) or regular,
        (*held["regular"], PILLOW),
        tuple(held["bold"]) or (PILLOW,),
    )


def _style(name: str) -> str:
    low = name.lower()
    if any(word in low for word in ("italic", "oblique", "slanted", "bdita", "-it", "lightit")):
        return "italic"
    return "bold" if any(word in low for word in ("bold", "demi", "black", "heavy")) else "regular"


def _is_held(name: str) -> bool:
    family = name.split("-")[0].split("_")[0].lower()
    return hashlib.sha256(family.encode()).digest()[0] % 6 == 0


def _draws_latin(name: str, path: str) -> bool:
    if any(word in name.lower() for word in _SYMBOLS):
        return False
    try:
        font = ImageFont.truetype(path, 20, layout_engine=ImageFont.Layout.BASIC)
    except OSError:
        return False
    # A font without a glyph draws the box for missing ones, the same for any two letters.
    masks = {bytes(font.getmask(character)) for character in "agQWe0"}
    return len(masks) == 6


def _installed() -> list[str]:
    """Paths of all OpenType and TrueType fonts: fontconfig's, where there is such, and those of the usual folders."""
    try:
        done = subprocess.run(["fc-list", "-f", "%{file}\n"], capture_output=True, text=True, check=True)
        found = set(done.stdout.split("\n"))
    except (OSError, subprocess.CalledProcessError):
        found = set()
    for folder in _FOLDERS:
        found |= {str(path) for path in Path(folder).rglob("*")}
    return [path for path in found if path.lower().endswith((".ttf", ".otf")) and os.access(path, os.R_OK)]
