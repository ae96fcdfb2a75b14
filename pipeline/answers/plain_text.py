"""Answers without boxes (GLM-OCR, PaddleOCR-VL, dots.ocr's text prompt): Markdown blocks, placed by the draft's lines.

Each paragraph of the answer is aligned with an independent reading of the page (text layer or classic OCR) and
takes the hull of the lines it matches, so that search hits have boxes here too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rapidfuzz.distance import Indel

from pipeline.answers.cells import Answer, AnswerSpace, Cell, to_block
from storage.records import Box, Category, Line

_FENCE = re.compile(r"\A\s*```(?:markdown)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_LIST_ITEM = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+\S")
MATCHED = 0.4  # part of a block's characters that must be found in the draft for its box to be trusted


def parse(text: str, space: AnswerSpace, draft: Sequence[Line] = ()) -> Answer:
    """Blocks of a Markdown answer; boxes from `draft` (page points), the whole page where nothing matches."""
    fenced = _FENCE.match(text)
    body = (fenced.group(1) if fenced else text).strip()
    if not body:
        return Answer((), blank=True)
    chunks = _chunks(body)
    boxes = _boxes(chunks, draft)
    blocks = []
    for chunk, box in zip(chunks, boxes, strict=True):
        cell = Cell(None, "", chunk)
        block = to_block(cell, _category(chunk), space)
        blocks.append(block if box is None else replace(block, box=box))
    return Answer(tuple(blocks))


def _chunks(body: str) -> list[str]:
    """Paragraphs; a list is cut into its items."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", body):
        lines = paragraph.strip("\n").splitlines()
        if lines and all(_LIST_ITEM.match(line.strip()) for line in lines):
            found += lines
        elif paragraph.strip():
            found.append(paragraph.strip())
    return found


def _category(chunk: str) -> Category:
    if re.match(r"#{1,6}\s", chunk):
        return Category.TITLE if re.match(r"#\s", chunk) else Category.SECTION_HEADER
    if re.match(r"<table|\|.*\|\s*\n\s*\|[\s:|-]+\|", chunk):
        return Category.TABLE
    if chunk.startswith(("$$", "\\[")):
        return Category.FORMULA
    if chunk.startswith("```"):
        return Category.CODE
    return Category.LIST_ITEM if _LIST_ITEM.match(chunk) else Category.TEXT


def _boxes(chunks: Sequence[str], draft: Sequence[Line]) -> list[Box | None]:
    """Per chunk the hull of the draft lines that its characters align with."""
    skeletons = [_skeleton(chunk) for chunk in chunks]
    answer = "".join(skeletons)
    source = [(_skeleton(line.text), line.box) for line in draft]
    reference = "".join(text for text, _ in source)
    owner = [at for at, (text, _) in enumerate(source) for _ in text]  # draft character → its line
    matched: list[int | None] = [None] * len(answer)
    for block in Indel.opcodes(answer, reference):
        if block.tag == "equal":
            for step in range(block.src_end - block.src_start):
                matched[block.src_start + step] = owner[block.dest_start + step]
    boxes: list[Box | None] = []
    at = 0
    for skeleton in skeletons:
        lines = [line for line in matched[at : at + len(skeleton)] if line is not None]
        at += len(skeleton)
        boxes.append(_hull(lines, [box for _, box in source], len(skeleton)))
    return boxes


def _hull(lines: Sequence[int], boxes: Sequence[Box], length: int) -> Box | None:
    if not lines or len(lines) < MATCHED * length:
        return None
    counts = {line: lines.count(line) for line in set(lines)}
    solid = [boxes[line] for line, count in counts.items() if count >= 3 or count * 4 >= length]
    if not solid:
        return None
    lefts, tops, rights, bottoms = zip(*solid, strict=True)
    return (min(lefts), min(tops), max(rights), max(bottoms))


def _skeleton(text: str) -> str:
    """What survives any markup: letters and digits, case folded."""
    return "".join(char for char in re.sub(r"<[^>]+>", "", text).casefold() if char.isalnum())
