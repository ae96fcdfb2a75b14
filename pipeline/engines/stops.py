"""What is told of a model's text that was ended before its end."""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import PageWarning, StopReason

_MESSAGES = {
    StopReason.LENGTH: ("truncated", "the text was cut at its length limit: the end is missing"),
    StopReason.REPETITION: (
        "repetition",
        "the same text came again and again; it was cut, the end is missing",
    ),
}


def stop_warning(reason: StopReason, note: str = "") -> tuple[PageWarning, ...]:
    """The warning that belongs to a stop reason, if one does; `note` says more."""
    if reason not in _MESSAGES:
        return ()
    code, message = _MESSAGES[reason]
    return (PageWarning(code, f"{message} ({note})" if note else message),)


def worst(reasons: Sequence[StopReason]) -> StopReason:
    """The most serious of several: repetition, then length, else complete."""
    for reason in (StopReason.REPETITION, StopReason.LENGTH):
        if reason in reasons:
            return reason
    return StopReason.COMPLETE
