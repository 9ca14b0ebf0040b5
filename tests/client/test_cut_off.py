"""Connections that end at random moments: no acknowledged record is lost, no caller is blamed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from typing import cast

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer, AsyncProducer
from kohort.client.net.transport import BrokerConnection
from kohort.client.producer.api import RecordMetadata
from kohort.errors import BrokerUnavailableError
from kohort.types import TopicPartition
from tests.client.loops import on_a_loop
from tests.client.watched_group import PROTOCOLS
from tests.system.clients.ours import settings_of

SEED = int(os.environ.get("KOHORT_CUTS_SEED", "7"))
TURNS = int(os.environ.get("KOHORT_CUTS_TURNS", "300"))
DRAFT: dict[str, object] = {
    "group_protocol": "draft",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 100,
}
SOON = (0, 0, 0.001, 0.003, 0.01, 0.03)
PARTITIONS = 4


class Scissors:
    """Knows all connections of this process's clients, and ends some."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(SEED)
        self.cuts = 0
        self.is_calm = False
        self._open: set[asyncio.Transport] = set()
        made, lost = BrokerConnection.connection_made, BrokerConnection.connection_lost

        def connection_made(of: BrokerConnection, transport: asyncio.BaseTransport) -> None:
            opened = cast("asyncio.Transport", transport)
            self._open.add(opened)
            made(of, transport)
            if self.chance.random() < 0.2:  # many break while they are opened
                self._cut_soon(opened)

        def connection_lost(of: BrokerConnection, error: Exception | None) -> None:
            self._open = {each for each in self._open if not each.is_closing()}
            lost(of, error)

        patch.setattr(BrokerConnection, "connection_made", connection_made)
        patch.setattr(BrokerConnection, "connection_lost", connection_lost)

    def cut_some(self) -> None:
        """End up to three connections in the next moments."""
        there = sorted(self._open, key=id)
        for each in self.chance.sample(there, min(len(there), self.chance.randint(0, 3))):
            self._cut_soon(each)

    def _cut_soon(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self.chance.choice(SOON), self._cut, transport)

    def _cut(self, transport: asyncio.Transport) -> None:
        if not self.is_calm and not transport.is_closing():
            self.cuts += 1
            with contextlib.suppress(OSError):  # the other end closed first
                transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


Seen = set[tuple[TopicPartition, int]]


async def poll(members: list[AsyncConsumer], seen: Seen) -> None:
    """Poll all; one that has not reached a broker yet may raise, and is polled again."""
    for each in members:
        with contextlib.suppress(BrokerUnavailableError):
            for partition, records in (await each.poll(5)).items():
                seen.update((partition, record.offset) for record in records)


async def sent(deliveries: list[asyncio.Future[RecordMetadata]]) -> Seen:
    """Offsets of all the records, which the broker must have acknowledged."""
    found = await asyncio.gather(*deliveries)
    return {(TopicPartition(each.topic, each.partition), each.offset) for each in found}


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "draft"])
@on_a_loop
async def test_connections_may_end_at_any_moment(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scissors = Scissors(monkeypatch)
    seen: Seen = set()
    deliveries: list[asyncio.Future[RecordMetadata]] = []
    with EmbeddedBroker(
        protocols=("classic", "consumer", "draft"), group_consumer_heartbeat_interval_ms=100
    ) as broker:
        broker.create_topic("t", PARTITIONS)
        settings: dict[str, object] = PROTOCOLS.get(protocol, DRAFT) | {
            "auto_commit_interval_ms": 50
        }
        chosen = settings_of(broker.bootstrap_servers, "g", settings)
        members = [AsyncConsumer("t", **chosen) for _ in range(2)]
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers)
        for turn in range(TURNS):
            deliveries.append(await producer.send("t", b"", partition=turn % PARTITIONS))
            scissors.cut_some()
            await poll(members, seen)
        scissors.is_calm = True
        acknowledged = await sent(deliveries)
        while not acknowledged <= seen or not all(each.assignment() for each in members):
            await poll(members, seen)
        await producer.close()
        for each in members:
            await each.close()
    assert acknowledged == seen
    assert scissors.cuts
