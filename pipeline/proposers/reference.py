"""Draft from a cheap reading of the same page: text layer, classic OCR, or what was read of it before.

Idea: a reference text as draft (Yang et al., "Inference with Reference", arXiv 2304.04487); drafts from a document
pipeline, arXiv 2602.12957. Here one chain, verified exactly; aligned on letters and digits alone, written in the form
the model has used so far, and tokenised where it will stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.proposers.base import NOTHING, Draft
from pipeline.proposers.lookup import NGramTable
from pipeline.reference import priors
from pipeline.reference.codec import Codec
from pipeline.reference.confidence import Confidence
from pipeline.reference.page import DraftedPage
from pipeline.reference.pipes import PipeGrid
from pipeline.reference.render import Rendered, Renderer
from pipeline.reference.scanner import Mark, Mode, OutputScanner
from pipeline.reference.skeleton import is_skeleton
from pipeline.reference.source import DraftSource
from pipeline.target import Decision
from pipeline.text_stream import TextStream

LOOKUP = "lookup"
# Where repeated mark-up ends: chance that the draft's text follows, and that the text follows which did before.
_IN_TABLE, _IN_TEXT = (0.55, 0.28), (0.33, 0.35)
_MARKUP = 24  # repeated ids in which the end of the mark-up is looked for
_CHARACTERS = 7  # of text rendered for each id wanted: ids of prose have 4 to 5
_CONTEXT = 8  # ids kept for tokenising what follows


def _content(text: str) -> int:
    """Where page text begins in `text`, which begins inside or before tags; its length where nothing but tags is."""
    inside = not text.startswith("<")
    for at, char in enumerate(text):
        if char == "<":
            inside = True
        elif char == ">":
            inside = False
        elif not inside and is_skeleton(char):
            return at
    return len(text)


class ReferenceProposer:
    """Guesses from a draft, or from n-grams where those promise more.

    `json`: the model answers with dots.ocr's array; `stop`: the id that ends the text.
    """

    name = "reference"

    def __init__(
        self, codec: Codec, source: DraftSource, table: NGramTable | None = None, *,
        json: bool = False, stop: int | None = None,
    ) -> None:  # fmt: skip
        self._codec = codec
        self._source = source
        self._table = table if table is not None else NGramTable()
        self._json = json
        self._stop = stop
        self._scanner = OutputScanner(json)
        self._grid = PipeGrid()
        self._stream = TextStream(codec)
        self._confidence = Confidence(priors.RATES)
        self._page: DraftedPage | None = None
        self._early: list[Mark] = []  # output written before the draft came
        self._ids: list[int] = []

    def begin(self, prompt: Sequence[int], first: Decision) -> None:
        """A page starts; its prompt is of no use here."""
        self._table.start_page()

    def observe(self, ids: Sequence[int], draft: Draft, accepted: int, decision: Decision) -> None:
        """Learn what was written, and how the draft did."""
        if draft.basis:
            self._confidence.observe(draft.basis, len(draft.ids), accepted)
        self._table.add(ids)
        self._ids = [*self._ids, *ids][-_CONTEXT:]
        text = self._stream.push(ids)
        self._grid.feed(text)
        marks = self._scanner.feed(text)
        if self._page is not None:
            self._page.take(marks)
        else:
            self._early += marks

    def propose(self, limit: int) -> Draft:
        """The draft written on, with the n-grams' guess as its rival."""
        if limit <= 0:
            return NOTHING
        repeated = list(self._from_ngrams(limit))
        mixed = list(self._mixed(repeated, limit))
        if mixed:
            mixed, repeated = self._parted(mixed[0], repeated[0])
        guesses = [*self._from_draft(limit), *mixed, *repeated]
        if not guesses:
            return NOTHING
        best, *rest = sorted(guesses, key=lambda guess: -sum(guess.survival))
        return replace(best, rivals=tuple(rest))

    # --- the two sources -----------------------------------------------------------------------------

    def _from_ngrams(self, limit: int) -> Iterator[Draft]:
        ids, size = self._table.longest_continuation(limit)
        if ids:
            basis = f"lookup {min(size, 4)} {self._place()}"
            yield Draft(ids, LOOKUP, basis, self._confidence.survival(basis, range(1, len(ids) + 1)))

    def _from_draft(self, limit: int) -> Iterator[Draft]:
        page = self._take_up()
        if page is None:
            return
        scanner = self._scanner
        if scanner.command:
            yield from self._tokenised(Renderer(page).command(limit * _CHARACTERS), limit, "command")
            return
        if scanner.in_markup and not self._is_known(page):
            missing = "" if scanner.math else page.separators.unfinished(scanner.run)
            yield from self._tokenised(Rendered(missing, (), False, cut=False), limit, "form")
            return
        need, basis = limit * _CHARACTERS, self._situation(page)
        found = list(self._tokenised(Renderer(page).render(need), limit, basis))
        if not found and scanner.run and not scanner.in_keys and page.aligner.here < page.draft.size:
            found = list(self._tokenised(Renderer(page).render(need, settled=True), limit, "settled"))
        yield from found

    def _mixed(self, repeated: Sequence[Draft], limit: int) -> Iterator[Draft]:
        """Mark-up as it was written before, then the draft's text."""
        page, scanner = self._page, self._scanner
        if page is None or scanner.in_keys or not repeated:
            return
        text = self._codec.decode(repeated[0].ids[:_MARKUP])
        end = next((at for at, char in enumerate(text) if is_skeleton(char)), len(text))
        markup = text[: _content(text)] if scanner.in_markup or "<" in text[:end] else text[:end]
        if not markup.strip() or len(markup) == len(text):
            return
        rendered = Renderer(page).after(markup, limit * _CHARACTERS)
        yield from self._tokenised(rendered, limit, f"mixed {repeated[0].basis}")

    def _parted(self, mixed: Draft, repeated: Draft) -> tuple[list[Draft], list[Draft]]:
        """Where the two part, the text begins that one has from the draft and one from what was written before."""
        pairs = zip(mixed.ids, repeated.ids, strict=False)
        at = next((at for at, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
        if at is None:
            return [mixed], []
        chances = _IN_TABLE if self._scanner.mode is not Mode.TEXT else _IN_TEXT
        first, second = (
            [replace(draft, survival=(*draft.survival[:at], *(s * chance for s in draft.survival[at:])))]
            for draft, chance in zip((mixed, repeated), chances, strict=True)
        )
        return first, second

    def _tokenised(self, rendered: Rendered, limit: int, basis: str) -> Iterator[Draft]:
        """The draft of a text where it would stand."""
        ids, ends = self._codec.following(self._ids, rendered.text) if rendered.text else ([], [])
        if rendered.text and not ids:
            return
        if rendered.cut and not rendered.ended and len(ids) > 1:
            ids, ends = ids[:-1], ends[:-1]  # the last one might be longer were the text not cut there
        if rendered.ended and self._stop is not None:
            ids, ends = [*ids, self._stop], [*ends, len(rendered.text) + 1]
        if ids:
            survival = self._confidence.survival(basis, ends[:limit], rendered.risks)
            yield Draft(tuple(ids[:limit]), self.name, basis, survival)

    def _place(self) -> str:
        return "keys" if self._scanner.in_keys else "markup" if self._scanner.run.strip() else "text"

    def _take_up(self) -> DraftedPage | None:
        """The page's draft, aligned with what was written before it came."""
        if self._page is None:
            draft = self._source.get()
            if draft is None or not draft.size:
                return None
            self._page = DraftedPage(draft, self._scanner, self._grid, self._json)
            for at in range(0, len(self._early), 12):
                self._page.take(self._early[at : at + 12])
            self._early = []
        return self._page

    def _is_known(self, page: DraftedPage) -> bool:
        """Whether a separator that begins like the mark-up under way was seen before."""
        return page.separators.going_on(self._scanner.mode, None, self._scanner.run) is not None

    def _situation(self, page: DraftedPage) -> str:
        """What the draft rests on, as `priors.RATES` names it."""
        scanner, aligner = self._scanner, page.aligner
        if scanner.in_keys:
            return "head"
        sure = aligner.sure
        grade = next(i for i, most in enumerate((0, 1, 2, 3, 7, 15, 39, 149, 10**9)) if sure <= most)
        place = "end" if aligner.here >= page.draft.size else "markup" if scanner.run.strip() else (
            "border" if page.draft.starts[page.draft.line[aligner.here]] == aligner.here else "text"
        )  # fmt: skip
        return f"{aligner.found} {grade} {place}"
