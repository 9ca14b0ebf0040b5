"""Stop a broker and start it again when every dialogue that runs on it is at that step."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

from kohort.wire.records import Record, encode_batch, iter_batches
from kohort.wire.records.header import with_base_offset
from tests.coordinator_dialogues.client import coordinators_ready
from tests.coordinator_dialogues.group_log import TOPIC, RawRecord


class Restartable(Protocol):
    """A broker that keeps its port and its data when it is stopped."""

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""

    def stop(self) -> None:
        """Shut down in order."""

    def start(self) -> object:
        """Serve again."""


class Restarts:
    """A barrier: the last dialogue to come restarts the broker for all.

    Dialogues that end, or have no such step, are waited for until they end.
    """

    def __init__(self, broker: Restartable, folder: Path) -> None:
        """Prepare.

        Args:
            broker: What is restarted.
            folder: Where it has a folder for each partition.
        """
        self._broker = broker
        self._folder = folder
        self._running = 0
        self._arrived = 0
        self._records: list[tuple[int, RawRecord]] = []
        self._over = asyncio.Event()

    def expect(self, runs: int) -> None:
        """Say how many dialogues there are."""
        self._running = runs

    async def arrive(self, partition: int, records: list[RawRecord]) -> None:
        """Wait for all others and the restart; `records` are then at the end of a partition."""
        self._records += [(partition, record) for record in records]
        self._arrived += 1
        over = self._over
        await self._restart_if_all_are_there()
        await over.wait()

    async def leave(self) -> None:
        """A dialogue is over."""
        self._running -= 1
        await self._restart_if_all_are_there()

    async def _restart_if_all_are_there(self) -> None:
        if not self._arrived or self._arrived < self._running:
            return
        over, self._over, self._arrived = self._over, asyncio.Event(), 0
        try:
            await asyncio.to_thread(self._restart)
            await coordinators_ready(self._broker.bootstrap_servers)
        finally:
            over.set()

    def _restart(self) -> None:
        self._broker.stop()
        for partition in {partition for partition, _ in self._records}:
            records = [record for at, record in self._records if at == partition]
            append(self._folder / f"{TOPIC}-{partition}", records)
        self._records.clear()
        self._broker.start()


def append(folder: Path, records: list[RawRecord]) -> None:
    """Put records at the end of a partition of a broker that does not run."""
    segment = max(folder.glob("*.log"))
    last = None
    for header, _ in iter_batches(segment.read_bytes()):
        last = header
    assert last is not None, f"{segment} has no records yet"
    now = int(time.time() * 1000)
    made = encode_batch([Record(at, now, *pair) for at, pair in enumerate(records)])
    with segment.open("ab") as file:
        file.write(with_base_offset(made, last.next_offset, last.partition_leader_epoch))
