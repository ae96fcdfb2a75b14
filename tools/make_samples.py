# /// script
# requires-python = ">=3.11"
# dependencies = ["reportlab>=4.2,<5", "pypdfium2>=5.3,<6", "pillow>=11", "numpy>=1.26"]
# ///
"""Draws the files in `samples/`: run `uv run tools/make_samples.py` to make them again.

All words and pictures are ours. The fonts are the PDF standard ones, which nothing embeds; the letter and
the receipt are drawn as PDF first, then rendered by PDFium and spoiled the way scanners and phones do, from
a fixed seed.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pypdfium2
from PIL import Image, ImageFilter
from reportlab import rl_config
from reportlab.lib import colors
from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    FrameBreak,
    KeepTogether,
    NextPageTemplate,
    PageTemplate,
    Paragraph,
    Table,
    TableStyle,
)

SEED = 1843
PAPER = Path(__file__).with_name("sample_paper.txt")
FIRST_PAGE = (
    41  # the paper pretends to be cut from a volume, so that printed page labels differ from page numbers
)

rl_config.invariant = 1  # no dates and no random id: the same file every time
rl_config.useA85 = 0

RESOLUTIONS = [100, 150, 200, 300, 400]
X_HEIGHT_PT = 4.5


def resolution_table() -> list[list[str]]:
    """Pixels of an A4 page and of a small x, per resolution: plain arithmetic."""
    rows = [["Dots per inch", "Width", "Height", "Megapixels", "Small x"]]
    for dpi in RESOLUTIONS:
        width, height = round(210 / 25.4 * dpi), round(297 / 25.4 * dpi)
        rows.append(
            [
                str(dpi),
                str(width),
                str(height),
                f"{width * height / 1e6:.1f}",
                str(round(X_HEIGHT_PT / 72 * dpi)),
            ]
        )
    return rows


def ruled_table() -> Table:
    """Table 1 of the paper, every cell framed."""
    grid = Table(resolution_table(), colWidths=[60, 36, 40, 54, 42], rowHeights=15, hAlign="CENTER")
    grid.setStyle(
        TableStyle(
            [
                ("FONT", (0, 0), (-1, 0), "Times-Bold", 9),
                ("FONT", (0, 1), (-1, -1), "Times-Roman", 9),
                ("ALIGN", (0, 0), (-1, -1), "RIGHT"),
                ("GRID", (0, 0), (-1, -1), 0.5, colors.black),
                ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
            ]
        )
    )
    return grid


def paper_title() -> str:
    """The paper's first line, without its mark."""
    return PAPER.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def paper(target: Path) -> None:
    """The born-digital one: two columns, headings, a list, a ruled table, running heads, page labels."""
    body = ParagraphStyle(
        "body", fontName="Times-Roman", fontSize=11.5, leading=14.6, alignment=TA_JUSTIFY, spaceAfter=6
    )
    title = ParagraphStyle(
        "title", fontName="Times-Bold", fontSize=16, leading=20, alignment=TA_CENTER, spaceAfter=8
    )
    author = ParagraphStyle("author", parent=body, fontName="Times-Italic", fontSize=11, alignment=TA_CENTER)
    abstract = ParagraphStyle("abstract", parent=body, leftIndent=30, rightIndent=30, fontSize=9.5)
    heading = ParagraphStyle(
        "heading",
        fontName="Helvetica-Bold",
        fontSize=12.5,
        leading=16,
        spaceBefore=10,
        spaceAfter=5,
        keepWithNext=1,
    )
    caption = ParagraphStyle(
        "caption", parent=body, fontSize=9, leading=11, alignment=TA_CENTER, spaceBefore=4
    )

    item = ParagraphStyle("item", parent=body, leftIndent=14, bulletIndent=4, spaceAfter=2)

    width, height = A4
    margin, gap = 54, 20
    column = (width - 2 * margin - gap) / 2
    head = 118

    def columns(top: float, name: str) -> list[Frame]:
        return [
            Frame(margin + i * (column + gap), 66, column, top - 66, 0, 0, 0, 0, id=f"{name}{i}")
            for i in range(2)
        ]

    def furniture(canvas: Canvas, _document: BaseDocTemplate) -> None:
        number = canvas.getPageNumber() + FIRST_PAGE - 1
        canvas.setFont("Times-Italic", 9)
        canvas.drawString(margin, height - 40, "Notes on Paper and Pixels")
        canvas.drawRightString(width - margin, height - 40, "The ocrd samples")
        canvas.setFont("Times-Roman", 9)
        canvas.drawCentredString(width / 2, 40, str(number))
        if canvas.getPageNumber() == 1:
            canvas.addPageLabel(0, style="ARABIC", start=FIRST_PAGE)

    top = height - 56
    first = [
        Frame(margin, top - head, width - 2 * margin, head, 0, 0, 0, 0, id="head"),
        *columns(top - head - 6, "a"),
    ]
    document = BaseDocTemplate(str(target), pagesize=A4, title=paper_title(), author="The ocrd developers")
    document.addPageTemplates(
        [
            PageTemplate("first", first, onPage=furniture),
            PageTemplate("later", columns(top, "b"), onPage=furniture),
        ]
    )
    story: list[Flowable] = [NextPageTemplate("later")]
    for paragraph in PAPER.read_text(encoding="utf-8").split("\n\n"):
        text = " ".join(paragraph.split())
        kind, _, rest = text.partition(" ")
        if kind == "#":
            story += [Paragraph(rest, title), Paragraph("The ocrd developers", author)]
        elif kind == "##":
            story.append(Paragraph(rest, heading))
        elif kind == "-":
            story.append(Paragraph(rest, item, bulletText="\u2022"))
        elif kind == "TABLE":
            story.append(
                KeepTogether(
                    [ruled_table(), Paragraph("Table 1: Pixels of an A4 page and of a small x", caption)]
                )
            )
        elif kind == "Abstract.":
            story += [Paragraph(f"<b>Abstract.</b> {rest}", abstract), FrameBreak()]
        else:
            story.append(Paragraph(text, body))
    document.build(story)


LETTER = """\
                                        Harbour Street 12
                                        St Brannock
                                        14 March 1957


Miss E. Thornbury
County Record Office
Castle Yard


Dear Miss Thornbury,

        re: Harbour ledgers, boxes 17 to 23

Thank you for your letter of the 2nd. We have now opened all
seven boxes. The ledgers for 1871 to 1884 are complete and dry.
Box 21 shows water damage along the lower edge, and eleven
leaves of the tide tables cannot be separated without help.

We should be glad to lend you the following volumes:

    1.  Arrivals and departures, 1871-1879
    2.  Arrivals and departures, 1880-1884
    3.  Pilotage dues, with the receipts pinned in

The carrier can collect them on Thursday the 28th. Please send
an acknowledgement for 3 volumes and 142 loose receipts, so that
both our lists agree.

It would please the harbour master, who is now eighty-six, to
see his father's handwriting read at last.

                                        Yours sincerely,



                                        J. Pellow
                                        Secretary
"""


def draw_letter() -> Image.Image:
    """The typed letter as a clean page at 200 dpi, grey."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4)
    width, height = A4
    canvas.setFont("Times-Bold", 15)
    canvas.drawCentredString(width / 2, height - 62, "ST BRANNOCK HARBOUR TRUST")
    canvas.setFont("Times-Italic", 10)
    canvas.drawCentredString(width / 2, height - 78, "Founded 1868")
    canvas.line(60, height - 88, width - 60, height - 88)
    text = canvas.beginText(70, height - 122)
    text.setFont("Courier", 11.5)
    text.setLeading(15.2)
    for line in LETTER.splitlines():
        text.textLine(line)
    canvas.drawText(text)
    canvas.save()
    return render(buffer.getvalue(), 200)


RECEIPT = """\
        PELLOW & DAUGHTER
       Paper and Archive Goods
    Quay Lane 4  -  St Brannock
--------------------------------
 Till 2             18.06.2024
 Receipt 004417     11:52
--------------------------------
 Archive box A4 x 6       41.40
 Acid-free folder x 25    18.75
 Cotton tape 50 m          7.20
 Soft pencil 2B x 3        2.85
--------------------------------
 Subtotal                 70.20
 VAT 20 %                 14.04
 TOTAL GBP                84.24
 Paid by card             84.24
--------------------------------
   Goods may be returned within
    30 days with this receipt.
      Thank you, come again!
"""


def draw_receipt() -> Image.Image:
    """The receipt as a clean slip, grey."""
    buffer = io.BytesIO()
    size = (250, 372)
    canvas = Canvas(buffer, pagesize=size)
    text = canvas.beginText(22, size[1] - 38)
    for number, line in enumerate(RECEIPT.splitlines()):
        text.setFont("Courier-Bold" if number == 0 or "TOTAL GBP" in line else "Courier", 10.5)
        text.setLeading(16.5)
        text.textLine(line)
    canvas.drawText(text)
    canvas.save()
    return render(buffer.getvalue(), 260)


def render(pdf: bytes, dpi: int) -> Image.Image:
    """The first page as a grey image."""
    document = pypdfium2.PdfDocument(pdf)
    try:
        return document[0].render(scale=dpi / 72, grayscale=True).to_pil().convert("L")
    finally:
        document.close()


def smooth_noise(rng: np.random.Generator, shape: tuple[int, int], cell: int) -> np.ndarray:
    """Noise in -1…1 that changes over about `cell` pixels: stains, paper, wood."""
    small = rng.normal(size=(shape[0] // cell + 2, shape[1] // cell + 2))
    image = Image.fromarray(small.astype(np.float32), mode="F").resize(
        (shape[1], shape[0]), Image.Resampling.BICUBIC
    )
    values = np.asarray(image)
    return np.clip(values / (np.abs(values).max() or 1), -1, 1)


def scan(target: Path, rng: np.random.Generator) -> None:
    """The letter as an office scanner gives it: a little turned, soft, grainy, a grey JPEG in a PDF."""
    clean = np.asarray(draw_letter()).astype(np.float32)
    ink = 255 - clean
    ink *= 0.80 + 0.20 * smooth_noise(rng, clean.shape, 5)  # an old ribbon: letters uneven
    paper_tone = 238 + 5 * smooth_noise(rng, clean.shape, 160) + 2.5 * smooth_noise(rng, clean.shape, 3)
    page = Image.fromarray(np.clip(paper_tone - ink * 0.86, 0, 255).astype(np.uint8))
    page = page.rotate(-0.8, Image.Resampling.BICUBIC, fillcolor=225).filter(ImageFilter.GaussianBlur(0.7))
    pixels = np.asarray(page).astype(np.float32)
    pixels[:, :9] -= np.linspace(120, 0, 9)  # the shadow at the lid's edge
    for _ in range(60):  # dust
        y, x = int(rng.integers(0, pixels.shape[0] - 3)), int(rng.integers(0, pixels.shape[1] - 3))
        pixels[y : y + int(rng.integers(1, 3)), x : x + int(rng.integers(1, 3))] -= 70
    pixels += rng.normal(0, 3.0, pixels.shape)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=52)
    buffer.seek(0)
    canvas = Canvas(str(target), pagesize=A4)
    canvas.setTitle("Scan")
    canvas.drawImage(ImageReader(buffer), 0, 0, *A4)
    canvas.save()


def perspective(source: list[tuple[float, float]], target: list[tuple[float, float]]) -> list[float]:
    """The eight coefficients Pillow wants for a transform that brings `source` corners to `target`."""
    rows, right = [], []
    for (u, v), (x, y) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return list(np.linalg.solve(np.array(rows), np.array(right)))


def photo(target: Path, rng: np.random.Generator) -> None:
    """The receipt as a phone sees it: on a table, leaning, lit from one side."""
    slip = draw_receipt()
    width, height = 1200, 1600
    corners = [(175.0, 118.0), (1012.0, 92.0), (1076.0, 1492.0), (132.0, 1466.0)]
    box = [(0.0, 0.0), (slip.width, 0.0), (slip.width, slip.height), (0.0, slip.height)]
    how = perspective(box, corners)
    warp = (Image.Transform.PERSPECTIVE, how, Image.Resampling.BICUBIC)
    ink = np.asarray(slip.transform((width, height), *warp, fillcolor=255)).astype(np.float32)
    inside = np.asarray(
        Image.new("L", slip.size, 255)
        .transform((width, height), *warp, fillcolor=0)
        .filter(ImageFilter.GaussianBlur(1.2))
    ).astype(np.float32)[..., None]
    shadow = np.asarray(Image.fromarray(inside[..., 0].astype(np.uint8)).filter(ImageFilter.GaussianBlur(22)))
    shadow = np.roll(shadow, (16, 12), (0, 1)).astype(np.float32)[..., None]

    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    grain = smooth_noise(rng, (height, width), 90) * 9 + smooth_noise(rng, (height, width), 14) * 3
    rings = np.sin(xs / 21 + 2.2 * smooth_noise(rng, (height, width), 240)) * 5
    wood = np.stack([128 + grain + rings, 92 + 0.8 * (grain + rings), 60 + 0.6 * (grain + rings)], axis=-1)
    wood *= 1 - 0.55 * shadow / 255
    fold = 7 * np.exp(-(((ys - 830) / 14) ** 2)) - 6 * np.exp(-(((ys - 858) / 22) ** 2))
    tone = 236 + fold + 2 * smooth_noise(rng, (height, width), 6) - (255 - ink) * 0.74
    sheet = np.stack([tone, tone * 0.985, tone * 0.94], axis=-1)

    picture = wood * (1 - inside / 255) + sheet * (inside / 255)
    light = 1.06 - 0.34 * (((xs - 250) / width) ** 2 + ((ys - 300) / height) ** 2)
    picture = picture * light[..., None] + rng.normal(0, 2.6, picture.shape)
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.6))
    image.save(target, "JPEG", quality=76)


def main(folder: Path) -> None:
    """Draw the three files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paper(folder / "paper.pdf")
    scan(folder / "letter-scan.pdf", np.random.default_rng(SEED))
    photo(folder / "receipt-photo.jpg", np.random.default_rng(SEED + 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "samples")
