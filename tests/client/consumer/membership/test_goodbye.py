"""A member leaves its group whenever its client knows the coordinator."""

from __future__ import annotations

from typing import cast

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, AsyncConsumer
from kohort.errors import ErrorCode
from kohort.group.coordinator.refusals import refuse
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec import frame as frames
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.membership import HeartbeatRequest
from tests.client.loops import on_a_loop
from tests.client.refusing_proxy import RefusingProxy
from tests.client.watched_group import PROTOCOLS, every_protocol
from tests.real_kafka import foreign
from tests.system.clients.ours import settings_of

# A member that waits this long before it looks up the coordinator leaves without having found it.
LATE = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}


class MovingProxy(RefusingProxy):
    """While `moves`, the coordinator has moved to an unknown broker."""

    moves = False
    looked_up = 0

    def answer_itself(self, frame: bytes) -> bytes | None:
        if not self.moves:
            return super().answer_itself(frame)
        received = frames.decode_request(memoryview(frame))
        response: Message
        if isinstance(received.message, FindCoordinatorRequest):
            self.looked_up += 1
            nobody = Coordinator(
                key="g",
                node_id=-1,
                host="",
                port=-1,
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message=None,
            )
            response = FindCoordinatorResponse(coordinators=(nobody,))
        elif isinstance(received.message, (HeartbeatRequest, ConsumerGroupHeartbeatRequest)):
            response = refuse(
                cast("Request[Message]", received.message),
                received.version,
                ErrorCode.NOT_COORDINATOR,
            )
        else:
            return None
        return bytes(frames.encode_response(response, received.version, received.correlation_id))


@every_protocol
@on_a_loop
async def test_who_commits_knows_the_coordinator_and_says_good_bye(protocol: str) -> None:
    """Otherwise its partitions wait for a session timeout, although its client got an answer."""
    with (
        EmbeddedBroker(group_consumer_heartbeat_interval_ms=100) as broker,
        MovingProxy(broker.bootstrap_servers) as proxy,
    ):
        topic = foreign.new_topic(broker.bootstrap_servers)
        settings: dict[str, object] = {**PROTOCOLS[protocol], **LATE}
        consumer = AsyncConsumer(topic, **settings_of(proxy.bootstrap_servers, "g", settings))
        while not consumer.assignment():
            await consumer.poll(50)
        proxy.moves = True
        while not proxy.looked_up:
            await consumer.poll(50)
        proxy.moves = False
        await consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(0)})
        await consumer.close()
        with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert not admin.describe_groups(["g"])["g"].members
