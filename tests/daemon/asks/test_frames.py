"""Frames: what is sent comes back, in whatever pieces it arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.asks.frames import LARGEST_ASK, Ask, encode, take

TEXT = st.text(st.characters(), max_size=50)  # lone surrogates too, as undecodable file names have them


@given(
    st.lists(st.dictionaries(TEXT, TEXT | st.integers() | st.booleans(), max_size=4), max_size=5), st.data()
)
def test_frames_come_back_however_they_are_cut(frames: list[dict[str, object]], data: st.DataObject) -> None:
    sent = b"".join(encode(frame) for frame in frames)
    buffer, found = bytearray(), []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        buffer += sent[:size]
        sent = sent[size:]
        while (frame := take(buffer, LARGEST_ASK)) is not None:
            found.append(frame)
    assert found == frames
    assert not buffer


def test_an_ask_comes_back() -> None:
    ask = Ask(("/a", "/b"), "me", model="tiny", mode="lookup", max_tokens=5, live=True, climbs=False)
    buffer = bytearray(encode(ask.frame()))
    frame = take(buffer, LARGEST_ASK)
    assert frame is not None
    assert Ask.of(frame) == ask


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\1\xff"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        take(bytearray(data), LARGEST_ASK)


def test_an_ask_of_another_version_is_refused() -> None:
    with pytest.raises(TypeError):
        Ask.of({"documents": [], "client": "", "colour": "red"})
