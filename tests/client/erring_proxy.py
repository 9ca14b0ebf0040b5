"""A proxy between a client and a broker that puts error codes into answers."""

from __future__ import annotations

import threading
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.codec.schema import Message
from kohort.wire.messages.fetch import FetchResponse
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.messages.offsets import OffsetFetchResponse
from kohort.wire.messages.produce import ProduceResponse
from kohort.wire.messages.producer_ids import InitProducerIdResponse
from tests.client.cutting_proxy import CuttingProxy

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FETCH, INIT_PRODUCER_ID = 0, 1, 2, 9, 22
_ANSWERS: dict[int, type[Message]] = {
    PRODUCE: ProduceResponse,
    FETCH: FetchResponse,
    LIST_OFFSETS: ListOffsetsResponse,
    OFFSET_FETCH: OffsetFetchResponse,
    INIT_PRODUCER_ID: InitProducerIdResponse,
}


class ErringProxy(CuttingProxy):
    """Plays one broker; sets an error code for the partitions of chosen answers.

    Attributes:
        erred: Number of answers with an error code.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.erred = 0
        self._key = self._code = self._left = 0
        self._versions: dict[int, int] = {}
        self._erring = threading.Lock()

    def err(self, code: int, key: int, times: int = 1) -> None:
        """Put a code into the next answers of an API that have a field for it."""
        with self._erring:
            self._code, self._key, self._left = code, key, times

    def answer_itself(self, frame: bytes) -> None:
        key, version, _ = frames.peek_request(memoryview(frame))
        self._versions[key] = version

    def changed(self, key: int, frame: bytes) -> bytes:
        with self._erring:
            if key != self._key or not self._left:
                return frame
            version = self._versions[key]
            answer = frames.decode_response(_ANSWERS[key], version, memoryview(frame))
            changed = _with_code(answer, self._code)
            if changed == answer:
                return frame
            self._left -= 1
            self.erred += 1
            number = frames.correlation_id_of(memoryview(frame))
            return bytes(frames.encode_response(changed, version, number)[4:])


def _with_code(message: Any, code: int) -> Any:
    """Return a message with this code in its innermost error fields."""
    inner = {
        name: tuple(_with_code(one, code) for one in value)
        for name, value in asdict(message).items()
        if isinstance(value, tuple) and value and isinstance(value[0], Struct)
    }
    changed = replace(message, **inner)
    if changed == message and hasattr(message, "error_code") and not _is_outer(message):
        return replace(message, error_code=code)
    return changed


def _is_outer(message: Any) -> bool:
    """Whether the codes that a client reads are in an inner struct, even if there is none now."""
    return isinstance(message, FetchResponse) or hasattr(message, "topics")
