"""A FastAPI service with a consumer in its lifespan, tested with the fixtures of kohort.

pip install "kohort[broker]" fastapi httpx2 pytest
pytest examples/testing/test_fastapi.py
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kohort import AsyncConsumer, RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from kohort.testing import KafkaHarness


class Archive:
    """Stores the totals of the service in a file; writing may take long."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Counter[str]:
        """Return the totals."""
        return Counter(json.loads(self._path.read_text()) if self._path.exists() else {})

    def save(self, totals: Counter[str]) -> None:
        """Write the totals; blocks."""
        self._path.write_text(json.dumps(totals))


class Stock(RebalanceListener):
    """Adds up the stock of each item, and archives it when partitions are revoked."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.totals = archive.load()

    def book(self, item: str, amount: int) -> None:
        """Record a change of the stock."""
        self.totals[item] += amount

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        """Archive everything, whichever partitions are revoked; the event loop stays responsive."""
        await asyncio.to_thread(self._archive.save, self.totals)

    async def follow(self, servers: str, topic: str, group: str) -> None:
        """Book records until cancelled."""
        async with AsyncConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,  # a test waits for commits
        ) as consumer:
            consumer.subscribe([topic], listener=self)
            async for record in consumer:
                self.book((record.key or b"").decode(), int(record.value or b"0"))


def service(servers: str, topic: str, group: str, archive: Archive) -> FastAPI:
    """Return the service; it consumes as long as it runs."""
    stock = Stock(archive)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(stock.follow(servers, topic, group))
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = FastAPI(lifespan=lifespan)

    @app.get("/stock/{item}")
    async def amount(item: str) -> int:
        return stock.totals[item]

    return app


class SlowArchive(Archive):
    """Blocks until released, for at most `patience_s`."""

    patience_s = 10

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.go_on, self.ended = (threading.Event() for _ in range(3))

    def save(self, totals: Counter[str]) -> None:
        """Write after the release."""
        self.begun.set()
        self.go_on.wait(self.patience_s)
        super().save(totals)
        self.ended.set()


def test_what_is_booked_can_be_asked_for(
    kohort_broker: KafkaHarness, kohort_topic: str, kohort_group: str, tmp_path: Path
) -> None:
    servers = kohort_broker.bootstrap_servers
    app = service(servers, kohort_topic, kohort_group, Archive(tmp_path / "totals"))
    with TestClient(app) as client:
        kohort_broker.produce(kohort_topic, b"5", b"-2", key=b"bolts")
        kohort_broker.wait_for_no_lag(kohort_group, kohort_topic)
        assert client.get("/stock/bolts").json() == 3


@pytest.mark.kohort_topic(partitions=2)
def test_it_answers_while_it_gives_partitions_up(
    kohort_broker: KafkaHarness, kohort_topic: str, kohort_group: str, tmp_path: Path
) -> None:
    archive = SlowArchive(tmp_path / "totals")
    app = service(kohort_broker.bootstrap_servers, kohort_topic, kohort_group, archive)
    with TestClient(app) as client:
        kohort_broker.wait_for_members(kohort_group, 1)
        other = threading.Thread(target=kohort_broker.rebalance, args=[kohort_group])
        other.start()
        try:
            assert archive.begun.wait(60), "no partition was revoked"
            assert client.get("/stock/bolts").json() == 0
            assert not archive.ended.is_set(), "the answer came when all was archived"
        finally:
            archive.go_on.set()
            other.join()
