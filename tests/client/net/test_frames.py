from __future__ import annotations

import resource
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.net.frames import Allocate, FrameReader, fetch_buffer, plain_buffer
from kohort.errors import RemoteProtocolError

LIMIT = 1 << 20
LARGE = st.integers(0, 200_000).map(lambda size: bytes([size % 251]) * size)


def feed(reader: FrameReader, data: bytes, cuts: list[int]) -> list[bytes]:
    """Receive `data` in pieces of the given sizes, then the rest."""
    frames: list[bytes] = []
    at = 0
    sizes = iter(cuts)
    while at < len(data):
        room = reader.buffer()
        assert len(room) > 0
        count = min(next(sizes, len(data)), len(room), len(data) - at)
        room[:count] = data[at : at + count]
        at += count
        if not reader.is_part(count):
            frames += [bytes(frame) for frame in reader.received(count)]
    return frames


@given(
    frames=st.lists(
        st.one_of(
            st.binary(max_size=50), st.integers(0, 200_000).map(lambda n: bytes([n % 251]) * n)
        ),
        max_size=6,
    ),
    cuts=st.lists(st.integers(1, 100_000), max_size=30),
)
def test_frames_come_out_whole_however_the_bytes_are_cut(
    frames: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    assert feed(FrameReader(LIMIT), data, cuts) == frames


def test_a_large_frame_is_received_into_its_own_memory() -> None:
    made: list[memoryview] = []

    def allocate(size: int) -> memoryview:
        made.append(memoryview(bytearray(size)))
        return made[-1]

    reader = FrameReader(LIMIT, allocate)
    head = (500_000).to_bytes(4, "big")
    reader.buffer()[:4] = head
    assert list(reader.received(4)) == []
    assert reader.buffer().obj is made[0].obj
    assert len(reader.buffer()) == 500_000


@pytest.mark.parametrize("length", [LIMIT + 1, 0x7FFFFFFF, -1])
def test_a_frame_beyond_the_limit_is_refused_before_memory_is_taken(length: int) -> None:
    def allocate(size: int) -> memoryview:
        raise AssertionError(f"{size} bytes were allocated")

    reader = FrameReader(LIMIT, allocate)
    reader.buffer()[:4] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError):
        list(reader.received(4))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("allocate", [plain_buffer, fetch_buffer])
def test_a_frame_that_is_announced_costs_what_has_arrived(allocate: Allocate) -> None:
    size = 90 * 1024 * 1024
    allocate(1024 * 1024)
    before = resident_bytes()
    readers = [FrameReader(100 * 1024 * 1024, allocate) for _ in range(5)]
    for reader in readers:
        assert feed(reader, struct.pack(">i", size) + bytes(10_000), []) == []
    assert resident_bytes() - before < size // 2
