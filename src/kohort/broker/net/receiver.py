"""Cuts a stream of bytes into frames, with bounded memory and few copies.

Small frames are cut out of a staging buffer. A larger frame gets its own buffer, which grows as its
bytes arrive, so a peer that announces much and sends little costs little.
"""

from __future__ import annotations

from kohort.wire.codec.frame import frame_length

STAGING_BYTES = 64 * 1024


class FrameReceiver:
    """The receive buffers of one connection; call `space` and `received` in turn."""

    def __init__(self, max_frame_bytes: int, staging_bytes: int = STAGING_BYTES) -> None:
        """Accept frames of up to `max_frame_bytes`; small ones use `staging_bytes` of memory."""
        self._limit = max_frame_bytes
        self._staging = bytearray(staging_bytes)
        self._start = self._end = 0
        self._large: bytearray | None = None
        self._large_size = self._large_end = 0

    def widen(self, max_frame_bytes: int) -> None:
        """Accept longer frames from now on, with a staging buffer of the usual size."""
        self._limit = max_frame_bytes
        wider = bytearray(STAGING_BYTES)  # a new buffer: views of the old one may be in use
        wider[: self._end] = memoryview(self._staging)[: self._end]
        self._staging = wider

    def drop(self) -> None:
        """Release the buffers; nothing more is received."""
        self._staging, self._large = bytearray(), None
        self._start = self._end = 0

    def space(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._large is None:
            return memoryview(self._staging)[self._end :]
        if self._large_end == len(self._large):
            grown = min(2 * len(self._large), self._large_size)
            self._large.extend(bytes(grown - len(self._large)))
        return memoryview(self._large)[self._large_end :]

    def received(self, count: int) -> list[memoryview]:
        """Record that `count` bytes were received; return the complete frames.

        Raises:
            RemoteProtocolError: A frame's length is negative or above the limit.
        """
        if self._large is not None:
            self._large_end += count
            if self._large_end < self._large_size:
                return []
            whole, self._large = memoryview(self._large), None
            return [whole]
        self._end += count
        return self._cut()

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        staging = memoryview(self._staging)
        while self._end - self._start >= 4:
            head = self._start + 4
            length = frame_length(staging[self._start : self._end], self._limit)
            if length > len(self._staging) - 4:
                self._begin_large(length)
                return frames
            if self._end - head < length:
                break
            # Copied, so that the staging buffer can be reused at once.
            frames.append(memoryview(bytes(self._staging[head : head + length])))
            self._start = head + length
        self._compact()
        return frames

    def _begin_large(self, length: int) -> None:
        have = self._staging[self._start + 4 : self._end]
        self._large = bytearray(min(2 * len(self._staging), length))
        self._large[: len(have)] = have
        self._large_size, self._large_end = length, len(have)
        self._start = self._end = 0

    def _compact(self) -> None:
        """Move an incomplete frame to the front, so that there is always room to receive."""
        rest = self._end - self._start
        if self._start:
            self._staging[:rest] = self._staging[self._start : self._end]
            self._start, self._end = 0, rest
