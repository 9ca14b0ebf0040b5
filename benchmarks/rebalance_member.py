"""One member for `benchmarks/rebalance.py`: prints the time at which it gets records.

    python benchmarks/rebalance_member.py KIND SERVERS GROUP TOPIC

Each line is `wall-clock-ms partition last-offset`. SIGTERM closes the consumer and ends it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
POLL_S = 0.1

stopping = False


def stop(_signal: int, _frame: object) -> None:
    """End after the current poll."""
    global stopping  # noqa: PLW0603  # a signal handler has no other way
    stopping = True


def told(found: Iterable[tuple[int, int]]) -> None:
    """Print the result of a poll."""
    now = time.time() * 1000
    for partition, offset in found:
        print(f"{now:.1f} {partition} {offset}")
    sys.stdout.flush()


def kohort(protocol: str, servers: str, group: str, topic: str) -> None:
    """Run our own consumer."""
    from kohort import Consumer

    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if protocol != "consumer":
        strategy = "cooperative-sticky" if protocol == "cooperative" else "range"
        settings = {
            "partition_assignment_strategy": strategy,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
    with Consumer(topic, bootstrap_servers=servers, group_id=group, **settings) as consumer:
        while not stopping:
            found = consumer.poll(timeout_ms=int(POLL_S * 1000))
            told((tp.partition, records[-1].offset) for tp, records in found.items())


def librdkafka(protocol: str, servers: str, group: str, topic: str) -> None:
    """Run confluent-kafka."""
    import confluent_kafka

    settings: dict[str, object] = {"group.protocol": "consumer"}
    if protocol != "consumer":
        strategy = "cooperative-sticky" if protocol == "cooperative" else "range"
        settings = {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "log_level": 0, **settings}
    )
    consumer.subscribe([topic])
    while not stopping:
        last: dict[int, int] = {}
        first = consumer.poll(POLL_S)
        for message in [first, *consumer.consume(500, 0)] if first else []:
            if message.error() is None:
                last[message.partition() or 0] = message.offset() or 0
        told(last.items())
    consumer.close()


def kafka_python(protocol: str, servers: str, group: str, topic: str) -> None:
    """Run kafka-python."""
    import warnings

    warnings.simplefilter("ignore")
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    assignor = CooperativeStickyAssignor if protocol == "cooperative" else RangePartitionAssignor
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        partition_assignment_strategy=[assignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while not stopping:
        found = consumer.poll(timeout_ms=int(POLL_S * 1000))
        told((tp.partition, records[-1].offset) for tp, records in found.items())
    consumer.close()


def aiokafka(_protocol: str, servers: str, group: str, topic: str) -> None:
    """Run aiokafka, which has the eager protocol only."""

    async def run() -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        while not stopping:
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            told((tp.partition, records[-1].offset) for tp, records in found.items())
        await consumer.stop()

    asyncio.run(run())


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "kohort": kohort,
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def main() -> None:
    """Run until stopped."""
    signal.signal(signal.SIGTERM, stop)
    kind, servers, group, topic = sys.argv[1:]
    client, protocol = kind.rsplit(" ", 1)
    CLIENTS[client](protocol, servers, group, topic)


if __name__ == "__main__":
    main()
