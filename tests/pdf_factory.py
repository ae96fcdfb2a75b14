"""PDFs made in the test: pages of text drawing operators, pictures and annotations, written by hand."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

# Fonts every page has: the standard ones; U writes any text of the basic plane, every character 1 em wide (it is not
# embedded: a viewer takes what it has); X is Helvetica with a ToUnicode map that is 31 codes off, as broken files have.
_STANDARD = {"H": "Helvetica", "B": "Helvetica-Bold", "I": "Helvetica-Oblique", "C": "Courier"}
_UNICODE = {"U": "Identity-H"}


@dataclass(frozen=True)
class Page:
    """A page: `content` operators, `images` drawn as /P0, /P1 …, raw `annotations` dictionaries.

    `forms` are raw stream objects for annotations to refer to: `{form}` in an annotation stands for the last one.
    """

    content: str = ""
    width: float = 612
    height: float = 792
    rotate: int = 0
    crop: tuple[float, float, float, float] | None = None  # left, bottom, right, top
    images: Sequence[Image.Image] = ()
    annotations: Sequence[str] = ()
    forms: Sequence[str] = ()


def text(
    string: str,
    x: float,
    y: float,
    size: float = 12,
    *,
    font: str = "H",
    angle: float = 0,
    mode: int = 0,
    grey: float = 0,
    more: str = "",
) -> str:
    """Operators that show `string` with its baseline starting at (x, y), in points from the bottom left.

    `font` H, B, I, C, U or X; `angle` in degrees anticlockwise; `mode` 3 is invisible; `grey` 0 black … 1 white;
    `more` operators before it (such as `5 Tc` or `10 Tw`).
    """
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    if font in _UNICODE:
        shown = f"<{string.encode('utf-16-be').hex()}>"
    else:
        escaped = string.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        shown = f"({escaped})"
    place = f"{cos:.5f} {sin:.5f} {-sin:.5f} {cos:.5f} {x} {y} Tm"
    return f"q {grey} g BT /{font} {size} Tf {mode} Tr {more} {place} {shown} Tj ET Q\n"


def picture(index: int, x: float, y: float, width: float, height: float) -> str:
    """Operators that draw image `index` with its lower left corner at (x, y)."""
    return f"q {width} 0 0 {height} {x} {y} cm /P{index} Do Q\n"


def rule(x0: float, y0: float, x1: float, y1: float, thickness: float = 1) -> str:
    """Operators that stroke a line."""
    return f"q {thickness} w {x0} {y0} m {x1} {y1} l S Q\n"


def scan(
    lines: Sequence[tuple[str, float, float, float]],
    width: float = 612,
    height: float = 792,
    dpi: float = 100,
) -> Image.Image:
    """A grey picture of a page with printed lines: (text, x, baseline y from the bottom, size), all in points."""
    from PIL import Image, ImageDraw, ImageFont

    scale = dpi / 72
    image = Image.new("L", (round(width * scale), round(height * scale)), 255)
    draw = ImageDraw.Draw(image)
    for string, x, y, size in lines:
        font = ImageFont.load_default(size=size * scale)
        draw.text((x * scale, (height - y) * scale), string, fill=0, font=font, anchor="ls")
    return image


def pdf(*pages: Page) -> bytes:
    """The file."""
    objects: list[bytes] = [b"", b""]  # catalogue and page tree come last

    def add(body: str | bytes) -> int:
        objects.append(body.encode("latin-1") if isinstance(body, str) else body)
        return len(objects)

    fonts = _fonts(add)
    numbers = [_page(page, add, fonts) for page in pages]
    objects[0] = b"<</Type /Catalog /Pages 2 0 R>>"
    kids = " ".join(f"{number} 0 R" for number in numbers)
    objects[1] = f"<</Type /Pages /Count {len(pages)} /Kids [{kids}]>>".encode()
    return _file(objects)


def stream(data: bytes, entries: str = "") -> bytes:
    """A compressed stream object."""
    packed = zlib.compress(data)
    return (
        f"<<{entries} /Filter /FlateDecode /Length {len(packed)}>> stream\n".encode()
        + packed
        + b"\nendstream"
    )


def _page(page: Page, add, fonts: str) -> int:  # type: ignore[no-untyped-def]  # a closure of pdf()
    content = add(stream(page.content.encode("latin-1")))
    pictures = ""
    for i, image in enumerate(page.images):
        number = add(
            stream(
                image.convert("L").tobytes(),
                f"/Type /XObject /Subtype /Image /ColorSpace /DeviceGray /BitsPerComponent 8"
                f" /Width {image.width} /Height {image.height}",
            )
        )
        pictures += f"/P{i} {number} 0 R "
    forms = [add(body) for body in page.forms]
    annotations = " ".join(
        f"{add(body.replace('{form}', f'{forms[-1]} 0 R') if forms else body)} 0 R"
        for body in page.annotations
    )
    crop = f"/CropBox [{' '.join(map(str, page.crop))}]" if page.crop else ""
    return add(
        f"<</Type /Page /Parent 2 0 R /MediaBox [0 0 {page.width} {page.height}] {crop} /Rotate {page.rotate}"
        f" /Contents {content} 0 R /Annots [{annotations}]"
        f" /Resources <</Font <<{fonts}>> /XObject <<{pictures}>>>>>>"
    )


def _fonts(add) -> str:  # type: ignore[no-untyped-def]  # a closure of pdf()
    found = {
        name: add(f"<</Type /Font /Subtype /Type1 /BaseFont /{base} /Encoding /WinAnsiEncoding>>")
        for name, base in _STANDARD.items()
    }
    same = add(stream(_to_unicode("<0000> <FFFF> <0000>")))
    controls = add(stream(_to_unicode("<20> <7E> <0001>", digits=2)))
    for name, encoding in _UNICODE.items():
        descendant = add(
            "<</Type /Font /Subtype /CIDFontType2 /BaseFont /Sample /DW 1000"
            " /CIDSystemInfo <</Registry (Adobe) /Ordering (Identity) /Supplement 0>>>>"
        )
        found[name] = add(
            f"<</Type /Font /Subtype /Type0 /BaseFont /Sample /Encoding /{encoding}"
            f" /DescendantFonts [{descendant} 0 R] /ToUnicode {same} 0 R>>"
        )
    found["X"] = add(f"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode {controls} 0 R>>")
    return " ".join(f"/{name} {number} 0 R" for name, number in found.items())


def _to_unicode(bfrange: str, digits: int = 4) -> bytes:
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Sample def /CMapType 2 def\n"
        f"1 begincodespacerange <{'0' * digits}> <{'F' * digits}> endcodespacerange\n"
        f"1 beginbfrange {bfrange} endbfrange endcmap end end\n"
    ).encode()


def _file(objects: Sequence[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
    out += f"trailer <</Size {len(objects) + 1} /Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)
