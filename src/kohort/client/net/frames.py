"""Split received bytes into frames, with one copy for small frames and none for large ones."""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Callable, Iterator

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.frame import ForeignProtocolError, frame_length

log = logging.getLogger("kohort.client")

_SCRATCH = 64 * 1024
_HEAD = 4
_LARGE = 256 * 1024
_LAZY = 1024 * 1024

Allocate = Callable[[int], memoryview]


def plain_buffer(size: int) -> memoryview:
    """Return a new buffer for a frame.

    The memory of a large buffer is committed page by page as bytes arrive: a server that announces
    a large frame and sends little costs little.
    """
    if size < _LAZY or sys.platform == "win32":
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def fetch_buffer(size: int) -> memoryview:
    """Return memory for a fetched frame.

    If Arrow is loaded, its pool provides memory that is not zeroed; applications that read only
    records need not load Arrow.
    """
    if size < _LARGE or "pyarrow" not in sys.modules:
        return plain_buffer(size)
    import pyarrow as pa

    return memoryview(pa.allocate_buffer(size)).cast("B")


class FrameReader:
    """Provides the buffer to receive into, and returns complete frames.

    Bytes first arrive in a buffer that is reused. The rest of a larger frame is received straight
    into the frame's own memory.

    Args:
        limit: Maximum size of a frame, in bytes.
        allocate: Allocates memory for a frame.
    """

    def __init__(self, limit: int, allocate: Allocate = plain_buffer) -> None:
        self.limit = limit
        self._allocate = allocate
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._held = 0
        self._frame: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Return the buffer to receive into; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch[self._held :]

    def is_part(self, count: int) -> bool:
        """Accept `count` bytes in the buffer if they complete no frame; return whether it did."""
        if self._frame is None or self._filled + count >= len(self._frame):
            return False
        self._filled += count
        return True

    def received(self, count: int) -> Iterator[memoryview]:
        """Process `count` bytes in the buffer; yield the frames that are complete.

        Raises:
            RemoteProtocolError: A frame is longer than the limit.
        """
        if self._frame is not None:
            if not self.is_part(count):
                frame, self._frame = self._frame, None
                yield frame
            return
        self._held += count
        yield from self._cut()

    def _cut(self) -> Iterator[memoryview]:
        at = 0
        while self._held - at >= _HEAD:
            length = frame_length(self._scratch[at : self._held], self.limit)
            body = self._scratch[at + _HEAD : min(at + _HEAD + length, self._held)]
            frame = self._allocate(length) if length else plain_buffer(0)
            frame[: len(body)] = body
            at += _HEAD + len(body)
            if len(body) < length:
                self._frame, self._filled = frame, len(body)
                break
            yield frame
        rest = self._held - at
        self._scratch[:rest] = self._scratch[at : self._held]
        self._held = rest


def log_throttle(address: str, asked_ms: int, pause_ms: int) -> None:
    """Log that sending to a broker pauses."""
    log.warning(
        "%s asks for a pause of %d ms: a quota is used up (KIP-219), or the answer was garbled; "
        "nothing is sent there for %d ms",
        address,
        asked_ms,
        pause_ms,
    )


def told_of(address: str, error: RemoteProtocolError) -> RemoteProtocolError:
    """Return the error with the address, and with advice where there is any."""
    if not isinstance(error, ForeignProtocolError):
        return RemoteProtocolError(f"{address}: {error}")
    advice = "check host and port in bootstrap.servers and the broker's advertised listeners"
    if error.protocol == "TLS":
        advice = (
            "security.protocol has no TLS: set SSL or SASL_SSL, or use a listener of the broker"
            " without TLS"
        )
    return RemoteProtocolError(
        f"{address}: the port speaks {error.protocol}, not Kafka's protocol: {advice}"
    )
