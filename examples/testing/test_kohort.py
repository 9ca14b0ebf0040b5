"""A service written with kohort: its behaviour after losing its membership, in both group
protocols.

pip install "kohort[broker]" pytest
pytest examples/testing/test_kohort.py
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

import pytest

from kohort import Consumer

if TYPE_CHECKING:
    from kohort.testing import KafkaHarness


class Totals:
    """Sums up numbers by key; runs in a thread until it is stopped."""

    def __init__(
        self, servers: str, topic: str, group: str, protocol: Literal["classic", "consumer"]
    ) -> None:
        self.totals: dict[bytes | None, int] = {}
        self._consumer = Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,  # a test waits for commits
        )
        self._thread = threading.Thread(target=self._run)
        self._is_over = threading.Event()

    def _run(self) -> None:
        with self._consumer as consumer:
            while not self._is_over.is_set():
                for records in consumer.poll(100).values():
                    for record in records:
                        self.totals[record.key] = self.totals.get(record.key, 0) + int(record.value)

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; the records that it has read are committed."""
        self._is_over.set()
        self._thread.join()


@pytest.mark.kohort_topic(partitions=2)
def test_totals_survive_a_rebalance(
    kohort_broker: KafkaHarness,
    kohort_topic: str,
    kohort_group: str,
    kohort_protocol: Literal["classic", "consumer"],
) -> None:
    service = Totals(kohort_broker.bootstrap_servers, kohort_topic, kohort_group, kohort_protocol)
    service.start()
    try:
        kohort_broker.wait_for_members(kohort_group, 1)
        kohort_broker.produce(kohort_topic, *[b"1"] * 50, key=b"a")
        kohort_broker.wait_for_commit(kohort_group, {kohort_topic: 50})
        kohort_broker.rebalance(kohort_group)
        kohort_broker.produce(kohort_topic, *[b"1"] * 50, key=b"a")
        kohort_broker.wait_for_commit(kohort_group, {kohort_topic: 100})
    finally:
        service.stop()
    assert service.totals == {b"a": 100}
