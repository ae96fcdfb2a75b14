"""Names and page text out to fool a terminal, through every command that shows them, on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.house import House, require
from tests.faults.scenario import Ground
from tests.pdf_factory import Page, pdf, picture, scan, text

ROOT = Path(__file__).parent.parent.parent
# What no output may hold as it stands: each is a thing that a terminal obeys, or a reader is fooled by.
TITLE, RED, CLEAR, CSI_8BIT = "\x1b]0;EVIL\x07", "\x1b[31;47mEVIL", "\x1b[2JEVIL", "\x9b31mEVIL"
NEW_LINE, TURNED = "\nEVIL LINE", "\u202efdp.EVIL"
NAMES = (
    f"a{TITLE}.png", f"b{RED}.pdf", f"c{NEW_LINE}.png", f"d{TURNED}.png", "e\rEVIL RETURN.png", "f\x08\x08EVIL.png",
    "g[bold red]EVIL[link=evil]x.png", "h<img src=x onerror=EVIL>.png", "i`$(EVIL)`.png", f"j{CSI_8BIT}.png",
    "k\x1bcEVIL.pdf", "-l --EVIL.png", "m%s%nEVIL.png", f"broken{RED}.pdf", f"locked{TITLE}.pdf",
)  # fmt: skip
FORBIDDEN = (
    b"\x1b]0;EVIL", b"\x1b[31;47mEVIL", b"\x1b[2JEVIL", b"\xc2\x9b31m", b"\nEVIL LINE", b"\r\nEVIL LINE",
    "\u202e".encode(), b"\rEVIL RETURN", b"\x08\x08EVIL", b"\x1bcEVIL", b"\x1b]8;;evil",
)  # fmt: skip
PAGE_TEXT = (
    f"harbour {RED} and {CLEAR} and {TITLE} ledger\\nfrom {TURNED} to {CSI_8BIT} | <script>EVIL</script>"
)


def terminal(ground: Ground) -> None:
    """Control characters, escapes, newlines and mark-up in names and page text reach no terminal and no log raw."""
    folder = ground.folder / "in"
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(_content(name, number))
    house = House(ground.folder / "house", folder)
    house.give_database(ground.empty_database)
    with house:
        shown = {}
        commands = _commands(house, folder)
        for words in commands[::2] if ground.small else commands:
            shown[" ".join(words)[:80]] = output = on_terminal(house, words)
            for piece in FORBIDDEN:
                require(
                    piece not in output, f"{words}: {piece!r} reached the terminal: {_around(output, piece)}"
                )
        require(len(b"".join(shown.values())) > 5000, f"hardly anything was shown: {shown}")
        require(any(b"EVIL" in output for output in shown.values()), "no name was shown at all")
        log = (house.home / "ocrd.log").read_bytes()
        for piece in (*FORBIDDEN, b"\x1b"):
            require(piece not in log, f"{piece!r} reached the log: {_around(log, piece)}")
        stamps = re.compile(rb"\A(\d{4}-\d\d-\d\dT|\s|Traceback|[\w.]+(Error|Exception))")
        odd = [line for line in log.splitlines() if line and not stamps.match(line)]
        require(not odd, f"a line of the log that is none of ours: {odd[:3]}")
    ground.note(f"{len(shown)} commands over {len(NAMES)} hostile names")


def _content(name: str, number: int) -> bytes:
    if name.startswith("broken"):
        return b"%PDF-1.7\nnothing" + bytes([number])
    if name.startswith("locked"):
        return (ROOT / "tests" / "data" / "encrypted.pdf").read_bytes()
    image = scan([("harbour ledger EVIL", 60, 700 - number, 14)], dpi=40)
    if name.endswith(".pdf"):
        printed = pdf(
            Page(text("harbour ledger of the harbour", 72, 700)),
            Page(picture(0, 0, 0, 612, 792), images=[image]),
        )
        return printed.replace(b"%%EOF", b"%" + TITLE.encode("latin-1") + b"\n%%EOF")
    import io

    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def _commands(house: House, folder: Path) -> list[list[str]]:
    first = str(folder / NAMES[0])
    return [
        ["batch", str(folder), "--out", str(house.out)],
        ["batch", str(folder), "--out", str(house.out), "-v"],
        ["status"],
        ["status", "--json"],
        ["search", "harbour"],
        ["search", "ledger", "--json"],
        ["show", first],
        ["read", first],
        ["read", str(folder / NAMES[1])],
        ["read", str(folder / NAMES[-2])],
        ["verify"],
        ["export", first, "--format", "text"],
        ["export", first, "--format", "jsonl"],
        ["export", first, "--format", "hocr"],
        ["retry", str(folder / NAMES[-1]), "--password", "x\x1b[31;47mEVIL"],
        ["doctor"],
        ["config"],
        ["forget", str(folder / NAMES[2])],
        ["forget", str(folder / f"nothing{RED}")],
        ["watch", str(folder / f"nothing{RED}")],
        ["batch", str(folder / f"nothing{TITLE}")],
        ["status"],
    ]


def on_terminal(house: House, words: list[str], within_s: float = 120.0) -> bytes:
    """All that a command writes to a terminal of 100 columns."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OCRD_")}
    environment |= {
        "OCRD_HOME": str(house.home), "OCRD_ENGINE": "fake", "OCRD_FAKE_SCRIPT": f"text:{PAGE_TEXT}", "TERM": "xterm",
        "COLUMNS": "100", "OCRD_CALIBRATE": "false", "OCRD_WORKERS": "1",
    }  # fmt: skip
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "daemon", *words],
        stdin=side, stdout=side, stderr=side, env=environment, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    output, deadline = b"", time.monotonic() + within_s
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([main], [], [], 0.2)
            if ready:
                with contextlib.suppress(OSError):  # the other end is closed
                    if piece := os.read(main, 65536):
                        output += piece
                        continue
                break
            if process.poll() is not None:
                break
        else:
            raise AssertionError(f"{words} did not end: {output[-500:]!r}")
    finally:
        process.kill()
        process.wait()
        os.close(main)
    return output


def _around(output: bytes, piece: bytes) -> bytes:
    at = output.find(piece)
    return output[max(0, at - 80) : at + 80]
