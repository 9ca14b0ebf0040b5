"""Our own consumers, both faces, as members that `Driver` polls like those of other people."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kohort.client import AsyncConsumer, Consumer
from kohort.client.consumer.listener import Listens
from kohort.client.consumer.reading import Records
from tests.system.clients.group import DEADLINE_S, Seen

T = TypeVar("T")

COMMON: dict[str, object] = {
    "auto_offset_reset": "earliest",
    "metadata_max_age_ms": 1_000,
    "group_protocol": "classic",
}
CLASSIC: dict[str, object] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 100,
    "partition_assignment_strategy": "range",
}


def settings_of(servers: str, group: str, settings: dict[str, object]) -> dict[str, Any]:
    """Settings of a member that sees rebalances soon."""
    chosen = COMMON | settings
    mine = CLASSIC if chosen["group_protocol"] == "classic" else {}
    return {"bootstrap_servers": servers, "group_id": group, **mine, **chosen}


def places(found: Records) -> list[Seen]:
    return [(tp.partition, each.offset) for tp, records in found.items() for each in records]


class OurMember:
    """The blocking consumer."""

    def __init__(
        self,
        servers: str,
        group: str,
        topic: str,
        listener: Listens | None = None,
        **settings: object,
    ) -> None:
        self.consumer = Consumer(**settings_of(servers, group, settings))
        self.consumer.subscribe([topic], listener=listener)

    def poll(self) -> list[Seen]:
        return places(self.consumer.poll(100))

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class OurAsyncMember:
    """The asyncio consumer, on a loop in a thread."""

    def __init__(
        self,
        servers: str,
        group: str,
        topic: str,
        listener: Listens | None = None,
        **settings: object,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.consumer = AsyncConsumer(**settings_of(servers, group, settings))
        self.run(self._subscribe(topic, listener))

    async def _subscribe(self, topic: str, listener: Listens | None) -> None:
        self.consumer.subscribe([topic], listener=listener)

    def run(self, awaitable: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the member's loop."""
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(DEADLINE_S)

    def poll(self) -> list[Seen]:
        return places(self.run(self.consumer.poll(100)))

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        try:
            self.run(self.consumer.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_S)
            self._loop.close()
