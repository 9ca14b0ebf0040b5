"""A proxy between a client and a broker that answers commits with an error, when asked to."""

from __future__ import annotations

from collections.abc import Callable

from kohort.errors import ErrorCode
from kohort.group.coordinator.refusals import commit_refused
from kohort.wire.codec import frame as frames
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import HeartbeatRequest
from kohort.wire.messages.offsets import OffsetCommitRequest
from tests.client.cutting_proxy import CuttingProxy

Offsets = dict[int, int]  # by partition, of the only topic there is


class RefusingProxy(CuttingProxy):
    """Plays one broker whose coordinator is loading.

    Attributes:
        refuses: Called with the offsets of each commit; True to answer with an error, without
            asking the broker.
        code: The error.
        refused: The offsets of refused commits.
        stored: The offsets of forwarded commits.
        heartbeats: The number of heartbeats.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.refuses: Callable[[Offsets], bool] = lambda _: False
        self.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.refused: list[Offsets] = []
        self.stored: list[Offsets] = []
        self.heartbeats = 0

    def answer_itself(self, frame: bytes) -> bytes | None:
        received = frames.decode_request(memoryview(frame))
        request = received.message
        if isinstance(request, (HeartbeatRequest, ConsumerGroupHeartbeatRequest)):
            self.heartbeats += 1
        if not isinstance(request, OffsetCommitRequest):
            return None
        offsets = {
            each.partition_index: each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        if not self.refuses(offsets):
            self.stored.append(offsets)
            return None
        self.refused.append(offsets)
        response = commit_refused(request, self.code)
        return bytes(frames.encode_response(response, received.version, received.correlation_id))
