"""The one decode loop: propose ▸ verify in one pass ▸ accept the agreed prefix and the model's own next id ▸ roll back.

Greedy. Whatever proposes, the ids are those of one token at a time (Leviathan et al., "Fast Inference from
Transformers via Speculative Decoding", 2023, at temperature 0). Knows nothing of text, pixels or MLX.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from pipeline.acceptance import accept
from pipeline.proposers.base import NOTHING, Draft, Proposer
from pipeline.rules import LogitsRule, banned_by
from pipeline.schedule import AdaptiveSchedule, Schedule
from pipeline.target import Decision, Session
from storage.records import DecodeStats, StopReason


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What a decode obeys.

    `watch(id)` sees every id written, once and in order, and may end the text after it by giving the reason (a stop
    string, a loop). It is never asked about a block, so that block length cannot change the result.
    `tau`: logit margin under which a row of a block is re-decided by a single-row pass; 0 = never (`--verify fast`).
    `equal_upto`: blocks of up to this many rows are known to equal single rows bit for bit: nothing to re-decide there.
    """

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    rules: Sequence[LogitsRule] = ()
    watch: Callable[[int], StopReason | None] | None = None
    tau: float = 0.0
    equal_upto: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """The ids of one pass: the first `accepted` of them were drafted by `source`, the rest are the model's own."""

    ids: tuple[int, ...]
    accepted: int
    drafted: int
    source: str


@dataclass(slots=True)
class Outcome:
    """How a decode ended, and what it took."""

    ids: list[int] = field(default_factory=list)
    stop_reason: StopReason = StopReason.LENGTH
    passes: int = 0  # of the model, the prefill left out
    drafted: int = 0
    accepted: int = 0
    redecided: int = 0

    @property
    def stats(self) -> DecodeStats:
        """What a page's row keeps."""
        return DecodeStats(len(self.ids), self.passes, self.drafted, self.accepted)


def decode(
    session: Session, proposer: Proposer, options: DecodeOptions, schedule: Schedule | None = None
) -> Generator[Step, None, Outcome]:
    """Yield the accepted ids pass by pass; the generator's return value is the `Outcome`.

    The stop id itself is not part of the ids. Closing the generator between passes cancels: the cache then holds the
    prompt and all ids yielded but the last, as it does at the end.
    """
    schedule = schedule or AdaptiveSchedule()
    outcome = Outcome()
    if options.max_tokens <= 0:
        return outcome
    margins = options.tau > 0
    first = session.start(banned=banned_by(options.rules, ()), margins=margins)
    proposer.begin((), first)
    draft, decision, new, accepted = NOTHING, first, [first.ids[-1]], 0
    while True:
        kept, reason = _keep(outcome.ids, new, options)
        outcome.ids += kept
        outcome.accepted += min(accepted, len(kept))
        if kept:
            proposer.observe(kept, draft, min(accepted, len(kept)), decision)
            yield Step(tuple(kept), min(accepted, len(kept)), len(draft.ids), draft.source)
        if reason is not None:
            outcome.stop_reason = reason
            return outcome
        draft = _propose(session, proposer, schedule, outcome, options)
        decision, accepted = _verify(session, draft, outcome, options)
        schedule.observe(len(draft.ids), accepted)
        new = [*draft.ids[:accepted], decision.ids[accepted]]


def _propose(
    session: Session, proposer: Proposer, schedule: Schedule, outcome: Outcome, options: DecodeOptions
) -> Draft:
    """A draft no longer than the schedule, the cache and the budget allow."""
    left = options.max_tokens - len(outcome.ids) - 1  # the model's own id takes the last place
    limit = max(0, min(schedule.limit(), session.room() - 1, left))
    draft = schedule.choose(proposer.propose(limit))
    ids = draft.ids[:limit]
    for at, token in enumerate(ids):
        if token in options.stop_ids:  # nothing can follow it: verified rows after it would be wasted
            ids = ids[: at + 1]
            break
    return replace(draft, ids=ids) if ids else NOTHING


def _verify(session: Session, draft: Draft, outcome: Outcome, options: DecodeOptions) -> tuple[Decision, int]:
    """One pass over the last id and the draft; the decision and how many draft ids were accepted."""
    tokens = [outcome.ids[-1], *draft.ids]
    tau = options.tau if len(tokens) > options.equal_upto else 0.0
    margins = tau > 0
    banned = [banned_by(options.rules, [*outcome.ids, *draft.ids[:i]]) for i in range(len(tokens))]
    decision = session.forward(tokens, banned=banned if any(banned) else (), margins=margins)
    outcome.passes += 1
    outcome.drafted += len(draft.ids)
    verdict = accept(draft.ids, decision.ids, margins=decision.margins, tau=tau)
    if not verdict.redecide:
        session.trim(len(draft.ids) - verdict.count)
        return decision, verdict.count
    # Too close to call in a block: drop the row and everything after it, and ask again with a single row.
    session.trim(len(draft.ids) - verdict.count + 1)
    row = verdict.count
    single = session.forward([tokens[row]], banned=[banned[row]] if banned[row] else ())
    session.trim(0)
    outcome.passes += 1
    outcome.redecided += 1
    ids = (*decision.ids[:row], single.ids[0])
    return Decision(ids, decision.margins, decision.hidden), row


def _keep(
    written: Sequence[int], new: Sequence[int], options: DecodeOptions
) -> tuple[list[int], StopReason | None]:
    """The part of `new` that belongs to the output, and why it ends there if it does."""
    kept: list[int] = []
    for token in new:
        if token in options.stop_ids:
            return kept, StopReason.COMPLETE
        kept.append(token)
        reason = options.watch(token) if options.watch is not None else None
        if reason is not None:
            return kept, reason
        if len(written) + len(kept) >= options.max_tokens:
            return kept, StopReason.LENGTH
    return kept, None
