"""Text is tokenised in its place, or not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.tokens import byte_pairs

CODEC, _ = byte_pairs(["the ferry crossed the sound there and then, and there was a bridge"] * 3)


def test_ids_go_on_where_the_text_stands() -> None:
    whole = CODEC.encode("the ferry crossed the sound")[0]
    for cut in range(1, len(whole)):
        text = CODEC.decode(whole[:cut])
        ids, ends = CODEC.following(whole[:cut], "the ferry crossed the sound"[len(text) :])
        assert ids == whole[cut:]
        assert ends[-1] == len("the ferry crossed the sound") - len(text)


def test_what_would_have_been_tokenised_otherwise_is_dropped() -> None:
    assert CODEC.encode("the")[0] != CODEC.encode("t")[0] + CODEC.encode("he")[0]  # else this shows nothing
    assert CODEC.following(CODEC.encode("t")[0], "he") == ([], [])


def test_an_unfinished_character_is_finished() -> None:
    ids = CODEC.encode("an €")[0]
    assert CODEC.following(ids[:-1], "€")[0] == ids[-1:]


@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_following_ids_spell_the_text(before: str, after: str) -> None:
    written = CODEC.encode(before)[0]
    ids, ends = CODEC.following(written, after)
    if ids:
        assert CODEC.decode([*written, *ids]) == before + after
        assert ends == sorted(ends)
