"""Results of a listener's method: None, or an awaitable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, RebalanceListener, TopicPartition
from kohort.broker import EmbeddedBroker
from tests.broker.processes import eventually

Given = frozenset[TopicPartition]


class Returns(RebalanceListener):
    """Returns a number, by mistake."""

    def on_partitions_assigned(self, partitions: Given, /) -> Any:
        return len(partitions)

    def on_partitions_revoked(self, partitions: Given, /) -> Any:
        return f"{len(partitions)} gone"


def test_what_cannot_be_awaited_is_refused_by_the_name_of_the_method(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(tmp_path) as broker,
        Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer,
    ):
        broker.create_topic("t", partitions=1)
        consumer.subscribe(["t"], listener=Returns())
        told: list[str] = []

        def is_told() -> bool:
            try:
                consumer.poll(200)
            except TypeError as error:
                told.append(str(error))
            return bool(told)

        eventually(is_told, "the poll raises")
        text = "must return None or an awaitable, not"
        assert told == [f"Returns.on_partitions_assigned {text} 1 (int)"]
        assert consumer.assignment() == {TopicPartition("t", 0)}
        with pytest.raises(TypeError, match=rf"on_partitions_revoked {text} '1 gone'"):
            consumer.close()
