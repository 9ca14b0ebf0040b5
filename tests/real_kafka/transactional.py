"""What tests of transactions share."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from kohort import Consumer, Producer, TopicPartition
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka

TIMEOUT_S = 60
# Never set: a wait between two looks.
PAUSE = threading.Event()
# The broker looks so often for transactions that are open for too long.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


def producing(kafka: RealKafka, name: str | None = None, **settings: Any) -> Producer:
    servers = kafka.bootstrap_servers
    given: dict[str, Any] = {"bootstrap.servers": servers, "transactional.id": name or new_id()}
    given |= {key.replace("_", "."): value for key, value in settings.items()}
    return Producer.from_config(given)


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:12]}"


def read(bootstrap: str, topic: str, **settings: object) -> list[bytes]:
    """All that is committed in the first partition."""
    place = TopicPartition(topic, 0)
    given = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", **settings}
    with Consumer.from_config({"bootstrap.servers": bootstrap, **given}) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[bytes] = []

        def is_at_the_end() -> bool:
            found.extend(each.value for each in consumer.poll(100).get(place, []))
            return consumer.position(place) >= end

        eventually(is_at_the_end, f"all of {topic} is read")
    return found


def ended(consumer: Consumer, place: TopicPartition) -> int:
    """The end of what a reader of committed records sees."""
    PAUSE.wait(0.05)
    return consumer.end_offsets([place])[place]
