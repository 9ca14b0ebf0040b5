"""Frames are received whole, however the network splits the stream."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.net.receiver import STAGING_BYTES, FrameReceiver
from kohort.errors import RemoteProtocolError

LIMIT = 1_000_000
# Around the size above which a frame gets its own buffer; FRAMES go well beyond it.
SIZES = st.sampled_from([0, 1, 3, 100, STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES - 3])
FRAMES = st.lists(
    st.builds(
        lambda size, byte: bytes([byte]) * size, SIZES | st.just(700_000), st.integers(0, 255)
    )
    | st.binary(max_size=30),
    max_size=8,
)


def feed(receiver: FrameReceiver, data: bytes, cuts: list[int]) -> list[bytes]:
    """Receive the data in pieces; a piece ends at a cut, or when the buffer is full."""
    frames: list[bytes] = []
    at = turn = 0
    while at < len(data):
        space = receiver.space()
        assert len(space) > 0
        piece = data[at : at + min(len(space), cuts[turn % len(cuts)])]
        space[: len(piece)] = piece
        space.release()
        frames += [bytes(frame) for frame in receiver.received(len(piece))]
        at += len(piece)
        turn += 1
    return frames


@given(FRAMES, st.lists(st.integers(1, 100_000), min_size=1, max_size=10))
def test_any_cuts_give_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    if sum(map(len, frames)) > 100_000:
        cuts = [max(cut, 50) for cut in cuts]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert feed(FrameReceiver(LIMIT), stream, cuts) == frames


def test_byte_by_byte() -> None:
    frames = [b"", b"a", b"bc" * 100]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert feed(FrameReceiver(LIMIT), stream, [1]) == frames


@pytest.mark.parametrize("length", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="the limit is 1000000"):
        feed(FrameReceiver(LIMIT), b"\0\0\0\1x" + struct.pack(">i", length), [100])


def test_an_announced_frame_costs_only_what_has_arrived() -> None:
    receiver = FrameReceiver(100_000_000)
    feed(receiver, struct.pack(">i", 99_000_000) + b"x" * 1000, [10_000])
    assert len(receiver.space()) < 300_000
