"""A rolling restart with `group_instance_id`: the other member keeps its partitions throughout.

Prints:
    both have 2 partitions
    pod-1 was restarted and has its old partitions: True
    pod-0 heard of no rebalance: True
"""

from __future__ import annotations

import threading

from kohort import Consumer, RebalanceListener, TopicPartition
from tests.usage.around import Protocol, start, topic_with, unique, until


class Pod(RebalanceListener):
    """One instance of the service, and its listener calls."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, name: str, protocol: Protocol
    ) -> None:
        self.heard: list[str] = []
        self.has: frozenset[TopicPartition] = frozenset()
        self.stopping = threading.Event()
        self.consumer = (
            Consumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=name,
                group_protocol=protocol,
                partition_assignment_strategy="cooperative-sticky",
            )
            if protocol == "classic"
            else Consumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=name,
                group_protocol=protocol,
            )
        )
        self.consumer.subscribe([topic], listener=self)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with self.consumer:
            while not self.stopping.is_set():
                self.consumer.poll(timeout_ms=100)
                self.has = self.consumer.assignment()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.heard.append("revoked")


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, partitions=4), unique("pods")
    zero, one = (Pod(bootstrap, topic, group, f"pod-{n}", protocol) for n in range(2))
    until(lambda: len(zero.has) == len(one.has) == 2, "both have partitions")
    print("both have 2 partitions")
    zero.heard.clear()
    before = one.has
    one.stop()
    one = Pod(bootstrap, topic, group, "pod-1", protocol)
    until(lambda: len(one.has) == 2, "it has its partitions again")
    print("pod-1 was restarted and has its old partitions:", one.has == before)
    print("pod-0 heard of no rebalance:", zero.heard == [])
    zero.stop()
    one.stop()


if __name__ == "__main__":
    start(main)
