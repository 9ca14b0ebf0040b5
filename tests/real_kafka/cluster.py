"""A cluster of three Apache Kafka nodes, two of which may end at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.real_kafka.broker import RealKafka

# What two of three nodes have acknowledged outlives the end of one.
REPLICATED: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}


class RealCluster:
    """Three nodes on loopback, as a context manager.

    Attributes:
        brokers: The two that are brokers only and may be killed; the first node, which is the
            controller as well, goes on.
        bootstrap_servers: Addresses of all three.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Write the settings of each; `settings` are by Kafka's names."""
        chosen = {**REPLICATED, **(settings or {})}
        self._first = RealKafka(folder / "1", chosen)
        self.brokers = tuple(
            RealKafka(folder / str(node), chosen, node_id=node, controller=self._first.controller)
            for node in (2, 3)
        )
        self._nodes = (self._first, *self.brokers)
        self.bootstrap_servers = ",".join(each.bootstrap_servers for each in self._nodes)

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(RealKafka.__enter__, self._nodes))
        return self

    def __exit__(self, *_: object) -> None:
        for node in reversed(self._nodes):
            node.kill()
