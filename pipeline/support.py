"""Words that a model wrote and that no other reading of the page knows of: invented, or missed by the other.

The other reading (text layer, classic OCR) is noisy, in another order, and breaks words at line ends; so a word counts
as known if something like it stands anywhere on the page. Single unknown words are nobody's fault. What is told are
runs of them: a sentence that is nowhere on the page.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process
from rapidfuzz.distance import Levenshtein

from pipeline.layer_text import implausible_share, symbol_share
from storage.records import Line, PageWarning

# Unknown words more than known ones in a row, for a run to be told. On 597 stored outputs of models with their drafts
# 9 pages have such a run, all of words the draft lacks or garbles; of 25 words put in from other pages 77 % are told.
RUN = 6
LEAST_WORDS = 15  # of the other reading, to be worth asking
LEAST_CONFIDENCE = 0.6
_MOST_IMPLAUSIBLE = 0.3
_SHOWN_RUNS, _SHOWN_WORDS = 3, 12

_WORD = re.compile(r"[^\W_]+")
_MARKUP = re.compile(r"<[^<>]+>|\$\$.*?\$\$|\$[^$\n]*\$|\\[A-Za-z]+|https?://\S+", re.DOTALL)
_WIDE = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True, slots=True)
class Run:
    """Words in a row that are mostly unknown; `first` and `last` (within) count the text's words from 0."""

    first: int
    last: int
    unknown: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Support:
    """What the other reading knows of a text."""

    words: int  # that could be looked for
    unknown: int
    runs: tuple[Run, ...]


def check(text: str, other: Sequence[Line]) -> Support | None:
    """How far `other` supports `text`; None where it is too little or too bad to say."""
    if not is_fit(other):
        return None
    known = _words(" ".join(line.text for line in other))
    words = _words(_MARKUP.sub(" ", text))
    verdicts = _verdicts(words, known)
    judged = [verdict for verdict in verdicts if verdict is not None]
    return Support(len(judged), judged.count(False), _runs(words, verdicts))


def warning(text: str, other: Sequence[Line]) -> PageWarning | None:
    """The warning `unsupported_text` with the runs, if there are any."""
    found = check(text, other)
    if found is None or not found.runs:
        return None
    parts = [_shown(run) for run in found.runs[:_SHOWN_RUNS]]
    more = len(found.runs) - len(parts)
    told = "; ".join(parts) + (f" and {more} more" if more > 0 else "")
    count = sum(run.unknown for run in found.runs)
    message = f"{count} of {found.words} words have no support in another reading of the page: {told}"
    return PageWarning("unsupported_text", message)


def _shown(run: Run) -> str:
    if len(run.words) <= _SHOWN_WORDS:
        return f"“{' '.join(run.words)}”"
    half = _SHOWN_WORDS // 2
    return f"“{' '.join(run.words[:half])} … {' '.join(run.words[-half:])}” ({len(run.words)} words)"


def is_fit(other: Sequence[Line]) -> bool:
    """Whether a reading is good enough to judge another by."""
    text = " ".join(line.text for line in other)
    if len(_words(text)) < LEAST_WORDS:
        return False
    sure = [(line.confidence, len(line.text)) for line in other if line.confidence is not None]
    if sure and sum(c * n for c, n in sure) < LEAST_CONFIDENCE * sum(n for _, n in sure):
        return False
    return implausible_share(text) <= _MOST_IMPLAUSIBLE and symbol_share(text) <= _MOST_IMPLAUSIBLE


def _words(text: str) -> list[str]:
    """Words as any reading would have them; of scripts without spaces, pairs of characters."""
    found = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text)):
        if _WIDE.search(word):
            found += [word[at : at + 2] for at in range(0, len(word), 2)]
        else:
            found.append(word)
    return found


def _verdicts(words: Sequence[str], known: Sequence[str]) -> list[bool | None]:
    """Per word whether it is known; None: too short to tell, or of a script the other reading cannot write."""
    page = _Page(known)
    seen: dict[str, bool | None] = {}
    return [seen[w] if w in seen else seen.setdefault(w, page.knows(w)) for w in words]


class _Page:
    def __init__(self, words: Sequence[str]) -> None:
        folded = [word.casefold() for word in words]
        self._words = sorted(set(folded))
        self._exact = frozenset(folded)
        self._all = "".join(folded)  # words broken at line ends, or run together, are whole here
        self._scripts = {_script(char) for char in set(self._all)}

    def knows(self, word: str) -> bool | None:
        wide = bool(_WIDE.search(word))
        if len(word) < 2 or _script(word[0]) not in self._scripts:
            return None
        folded = word.casefold()
        if not wide and len(folded) < 4:
            return None  # "the" is known on any page
        if folded in self._exact or folded in self._all:
            return True
        if wide:  # one of the two characters read wrongly is no invention
            return any(char in self._all for char in folded)
        likeness = 0.75 if len(folded) < 6 else 0.66
        if process.extractOne(
            folded, self._words, scorer=Levenshtein.normalized_similarity, score_cutoff=likeness
        ):
            return True
        return len(folded) >= 6 and fuzz.partial_ratio(folded, self._all, score_cutoff=80) > 0


def _script(char: str) -> str:
    if char.isdigit():
        return "DIGIT"
    name = unicodedata.name(char, "?").split(" ", 1)[0]
    return "CJK" if name in ("CJK", "HIRAGANA", "KATAKANA") else name


def _runs(words: Sequence[str], verdicts: Sequence[bool | None]) -> tuple[Run, ...]:
    """Stretches in which unknown words outnumber known ones by `RUN`: where a running balance rises from 0 so high."""
    found: list[Run] = []
    balance = best = 0  # of the present stretch: now, and where it was highest
    start = end = -1
    for at, verdict in enumerate([*verdicts, *[True] * RUN]):
        if verdict is None:
            continue
        if verdict is False and balance == 0:
            start, best = at, 0
        balance = max(0, balance + (1 if verdict is False else -1))
        if verdict is False and balance > best:
            best, end = balance, at
        if (balance == 0 or best - balance >= RUN) and best:
            if best >= RUN:
                unknown = sum(v is False for v in verdicts[start : end + 1])
                found.append(Run(start, end, unknown, tuple(words[start : end + 1])))
            balance = best = 0
    return tuple(found)
