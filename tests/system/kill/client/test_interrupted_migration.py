"""A move to KIP-848 that stops half-way, while the static members are away (decision 0012)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kohort import Consumer
from kohort.broker import EmbeddedBroker
from tests.broker.processes import eventually
from tests.real_kafka import foreign

PARTITIONS = 6
CLASSIC: dict[str, Any] = {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 100}
NEW: dict[str, Any] = {"group_protocol": "consumer"}


def statics(stack: ExitStack, servers: str, topic: str, settings: dict[str, Any]) -> None:
    """Three static members that have shared all partitions; they stop without leaving."""
    members = [
        stack.enter_context(
            Consumer(
                topic,
                bootstrap_servers=servers,
                group_id=topic,
                group_instance_id=f"i{number}",
                **settings,
            )
        )
        for number in range(3)
    ]

    def is_all_read() -> bool:
        for each in members:
            each.poll(20)
        return sum(len(each.assignment()) for each in members) == PARTITIONS

    eventually(is_all_read, "that every partition is read")


def test_static_members_come_back_to_all_partitions(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, group_consumer_heartbeat_interval_ms=100) as broker:
        servers = broker.bootstrap_servers
        topic = foreign.new_topic(servers, PARTITIONS)
        with ExitStack() as stack:
            statics(stack, servers, topic, CLASSIC)
        with Consumer(topic, bootstrap_servers=servers, group_id=topic, **NEW) as passing:

            def has_joined() -> bool:
                passing.poll(20)
                return passing.generation_id > 0

            eventually(has_joined, "that it makes the group one of KIP-848")
        with ExitStack() as stack:
            statics(stack, servers, topic, NEW)
