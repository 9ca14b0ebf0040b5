"""A proxy between a client and a broker that garbles answers, as a network or load balancer may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from tests.client.cutting_proxy import CuttingProxy

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
ALWAYS = 1_000_000

Garbles: TypeAlias = Callable[[bytes], bytes]
"""Returns what arrives instead of an answer; the answer itself for one that is to be good."""

_HEAD = 8  # length and correlation id
_RECORDS = 150  # an answer to Fetch of at least this size contains records


def nonsense(answer: bytes) -> bytes:
    """Keep the length and the correlation id; the rest is not a message."""
    return answer[:_HEAD] + b"\xff" * (len(answer) - _HEAD)


def http(_answer: bytes) -> bytes:
    """Answer like a load balancer whose broker is restarting."""
    return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


def zeros(_answer: bytes) -> bytes:
    """Send zeros."""
    return bytes(64)


def one_bit(answer: bytes) -> bytes:
    """Flip one bit of the last record of a fetch."""
    if len(answer) < _RECORDS:
        return answer
    return answer[:-12] + bytes([answer[-12] ^ 1]) + answer[-11:]


class GarblingProxy(CuttingProxy):
    """Plays one broker; garbles answers when asked to.

    Attributes:
        garbled: Number of garbled answers, by API key.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.garbled: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._how: Garbles = nonsense
        self._garbling = threading.Lock()

    def garble(self, how: Garbles, *keys: int, times: int = ALWAYS) -> None:
        """Garble the next answers to requests of these APIs."""
        with self._garbling:
            self._how, self._left = how, dict.fromkeys(keys, times)

    def stop(self) -> None:
        """Forward answers unchanged."""
        self.garble(nonsense)

    def on_the_way(self, key: int, out: bytes) -> bytes:
        with self._garbling:
            if not self._left.get(key):
                return out
            changed = self._how(out)
            if changed != out:
                self._left[key] -= 1
                self.garbled[key] = self.garbled.get(key, 0) + 1
            return changed
