"""Real bugs of other clients around commits and positions; ours is tested for each."""

from __future__ import annotations

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer
from kohort.errors import ErrorCode, KafkaError
from kohort.group.coordinator.refusals import refuse
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec import frame as frames
from kohort.wire.messages.offsets import OffsetFetchRequest
from tests.client.loops import on_a_loop
from tests.client.refusing_proxy import Offsets, RefusingProxy
from tests.client.watched_group import PARTITIONS, RECORDS, case, every_protocol
from tests.real_kafka import foreign
from tests.system.clients.ours import settings_of

TIMES = 3


class StaleProxy(RefusingProxy):
    """Answers the first requests for positions with a stale epoch."""

    asked = 0

    def answer_itself(self, frame: bytes) -> bytes | None:
        received = frames.decode_request(memoryview(frame))
        request = received.message
        if not isinstance(request, OffsetFetchRequest):
            return super().answer_itself(frame)
        self.asked += 1
        if self.asked > TIMES:
            return None
        response = refuse(request, received.version, ErrorCode.STALE_MEMBER_EPOCH)
        return bytes(frames.encode_response(response, received.version, received.correlation_id))


@on_a_loop
async def test_a_position_that_was_refused_is_asked_for_again() -> None:
    """U6, U5: otherwise a partition is owned but not read (node-rdkafka #1146, kafka-python #1590).

    Nor does a consumer with "latest" start at the end: there is a position (platformatic #267).
    """
    with (
        EmbeddedBroker(group_consumer_heartbeat_interval_ms=100) as broker,
        StaleProxy(broker.bootstrap_servers) as proxy,
    ):
        topic = foreign.new_topic(broker.bootstrap_servers)
        foreign.produce(broker.bootstrap_servers, topic, [b""] * RECORDS)
        partition = TopicPartition(topic, 0)
        settings: dict[str, object] = {"group_protocol": "consumer", "auto_offset_reset": "latest"}
        chosen = settings_of(proxy.bootstrap_servers, "g", settings)
        async with AsyncConsumer(**chosen) as consumer:
            proxy.asked = TIMES
            await consumer.commit({partition: OffsetAndMetadata(4)})
            proxy.asked = 0
            consumer.subscribe([topic])
            read: list[int] = []
            while len(read) < RECORDS - 4:
                for records in (await consumer.poll(50)).values():
                    read += [record.offset for record in records]
        assert read == list(range(4, RECORDS))
        assert proxy.asked == TIMES + 1


def always(_offsets: Offsets) -> bool:
    return True


@every_protocol
@on_a_loop
async def test_a_revocation_goes_on_though_its_commit_has_failed(protocol: str) -> None:
    """U3: the member stalled forever (librdkafka #2933); U6: it is reported (platformatic #340)."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.code, c.proxy.refuses = ErrorCode.OFFSET_METADATA_TOO_LARGE, always
        c.another()
        await c.poll_until_shared()
        assert c.proxy.refused
        given_up = c.everything - subject.assignment()
        revoked = [partitions for what, partitions in c.notes.told if what == "revoked"]
        assert given_up <= frozenset().union(*revoked)


@every_protocol
@on_a_loop
async def test_a_commit_that_nobody_takes_comes_to_an_end(protocol: str) -> None:
    """U5: kafka-python's consumers hung in it, and dropped out of their group (#1728, #1623)."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        with pytest.raises(KafkaError):
            await subject.commit(timeout_ms=300)
        assert len(c.proxy.refused) > 1
        c.proxy.refuses = lambda _: False
        await subject.commit()
        c.produce()
        await c.poll_until(lambda: len(c.seen) == 2 * PARTITIONS * RECORDS)
        assert [what for what, _ in c.notes.told] == ["assigned"]
