"""The process that draws pages for the browser: what a hostile file does to it, it does not do to the server.

Standard input brings requests as lines of JSON, standard output takes for each a line of JSON and the picture's bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from storage.errors import OcrdError

if TYPE_CHECKING:
    from PIL import Image

    from storage.settings import Settings

MEMORY_BYTES = 4 << 30
IDLE_S = 300.0
FEW_COLOURS = 256  # so many and fewer make a small PNG


@dataclass(frozen=True, slots=True)
class Wish:
    """A page to be drawn."""

    path: str  # undecodable bytes as surrogates
    page: int
    width: int
    format: str  # auto | png | jpeg
    passwords: tuple[str, ...] = ()


def paint(wish: Wish, settings: Settings) -> tuple[str, bytes]:
    """(media type, bytes) of the page, at most `width` wide and with at most `settings.max_pixels`.

    Raises: the input errors of `storage.errors`.
    """
    from pipeline.document import open_file
    from pipeline.rasterise import fit, rasterise

    with (
        open_file(Path(wish.path), settings, wish.passwords) as source,
        source.page(wish.page) as page,
    ):
        size = fit(wish.width, wish.width * page.height_pt / page.width_pt, settings.max_pixels)
        dpi = wish.width * 72 / page.width_pt
        image = rasterise(page, dpi=dpi, max_pixels=max(1, size[0] * size[1])).image
    return encode(image, wish.format)


def encode(image: Image.Image, wanted: str) -> tuple[str, bytes]:
    """The picture as PNG or JPEG; `auto`: PNG where it has few colours, as text on paper has."""
    data = io.BytesIO()
    as_png = wanted == "png" or (wanted == "auto" and image.getcolors(FEW_COLOURS) is not None)
    if as_png:
        image.save(data, "PNG", compress_level=3)
    else:
        image.save(data, "JPEG", quality=85)
    return "image/png" if as_png else "image/jpeg", data.getvalue()


def answer(wish: Wish, settings: Settings) -> tuple[dict[str, Any], bytes]:
    """What goes back for a request: a head, and the picture where there is one."""
    try:
        media_type, data = paint(wish, settings)
    except OcrdError as error:
        return {"error": [error.code, error.message, error.remedy]}, b""
    except MemoryError:
        return {"error": ["too_large", "not enough memory to draw the page", ""]}, b""
    except Exception as error:
        # The edge of the process: whatever a hostile file brings about is told, not fatal.
        return {"error": ["corrupt", f"the page cannot be drawn ({type(error).__name__})", ""]}, b""
    return {"media_type": media_type, "size": len(data)}, data


def serve(
    requests: BinaryIO, answers: BinaryIO, settings: Settings, work: Callable[..., Any] = answer
) -> None:
    """Answer request after request until there are no more."""
    while line := _next_line(requests):
        values = json.loads(line)
        wish = Wish(**{**values, "passwords": tuple(values["passwords"])})
        head, data = work(wish, settings)
        answers.write(json.dumps(head).encode() + b"\n" + data)
        answers.flush()


def _next_line(requests: BinaryIO) -> bytes:
    """The next request; nothing at the end, or after a long time without any."""
    with contextlib.suppress(OSError, ValueError):  # no file of the system's: it ends by itself
        if not select.select([requests], [], [], IDLE_S)[0]:
            return b""
    return requests.readline()


def to_line(wish: Wish) -> bytes:
    """A request as it goes to the process."""
    return json.dumps(asdict(wish)).encode() + b"\n"


def main() -> None:
    """The process. Its settings come as the first line: what bounds the decoding, and the passwords."""
    from storage.settings import Settings

    # Unbuffered: what lies in a buffer of ours, `select` would wait for in vain.
    requests, answers = os.fdopen(0, "rb", buffering=0, closefd=False), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    bounds = json.loads(requests.readline())
    bounds["passwords"] = tuple(bounds["passwords"])
    serve(requests, answers, Settings(home=Path(os.devnull), **bounds))


if __name__ == "__main__":
    main()
