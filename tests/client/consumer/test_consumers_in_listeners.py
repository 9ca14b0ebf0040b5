"""The listener of one consumer uses another one; it must only not wait for itself."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, RebalanceListener, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client.consumer.listener import Told
from kohort.errors import LocalProtocolError
from tests.broker.processes import eventually
from tests.client.consumer.reading_cases import COUNT
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.system.clients.ours import settings_of

PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
Given = frozenset[TopicPartition]


class Does(RebalanceListener):
    """Runs functions when partitions are assigned, and when they are revoked."""

    def __init__(self, deed: Callable[[], Told]) -> None:
        self.deed = deed

    def on_partitions_assigned(self, partitions: Given, /) -> Told:
        return self.deed()

    def on_partitions_revoked(self, partitions: Given, /) -> Told:
        return self.deed()


def member(bootstrap: str, topic: str, protocol: str, part: str = "first") -> Consumer:
    return Consumer(**settings_of(bootstrap, f"{part}-of-{topic}", PROTOCOLS[protocol]))


def read_all(bootstrap: str, topic: str, protocol: str) -> int:
    """Read a topic with a consumer of its own, in a group of its own."""
    count = 0

    def poll() -> bool:
        nonlocal count
        count += sum(map(len, other.poll(200).values()))
        return count == COUNT

    with member(bootstrap, topic, protocol, uuid.uuid4().hex) as other:
        other.subscribe([topic], listener=RebalanceListener())
        eventually(poll, "the other reads all")
        other.unsubscribe()
    return count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_reads_with_another_consumer(bootstrap: str, topic: str, protocol: str) -> None:
    found: list[object] = []
    refused: list[str] = []

    def deed() -> None:
        found.append(read_all(bootstrap, topic, "consumer" if protocol == "eager" else "eager"))
        for call in (consumer.poll, consumer.close, consumer.unsubscribe, lambda: next(consumer)):
            with pytest.raises(LocalProtocolError, match="inside a listener of the same consumer"):
                call()
            refused.append("refused")

    with member(bootstrap, topic, protocol) as consumer:
        consumer.subscribe([topic], listener=Does(deed))
        eventually(lambda: bool(consumer.poll(200)), "records come")
    assert found == [COUNT, COUNT]
    assert len(refused) == 8


def test_a_child_forked_in_a_listener_has_a_consumer_of_its_own(bootstrap: str, topic: str) -> None:
    codes: list[int] = []

    def deed() -> None:
        if codes:
            return
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(LocalProtocolError, match="belongs to the parent process"):
                    consumer.poll()
                consumer.close()  # the parent's consumer: this does nothing
                code = 0 if read_all(bootstrap, topic, "consumer") == COUNT else 2
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with member(bootstrap, topic, "eager") as consumer:
        consumer.subscribe([topic], listener=Does(deed))
        eventually(lambda: bool(consumer.poll(200)), "records come")
    assert codes == [0]


@on_a_loop
async def test_a_coroutine_reads_with_another_consumer(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        topic = foreign.new_topic(servers)
        foreign.produce(servers, topic, [b"value"])
        settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "auto_offset_reset": "earliest",
        }
        found: list[bytes] = []

        async def look() -> None:
            if found:
                return
            async with AsyncConsumer(topic, group_id="other", **settings) as other:
                found.append((await anext(other)).value)
            with pytest.raises(LocalProtocolError, match="inside a listener"):
                await consumer.poll()

        async with AsyncConsumer(group_id="g", **settings) as consumer:
            consumer.subscribe([topic], listener=Does(look))
            found.append((await anext(consumer)).value)
        assert found == [b"value"] * 2
