"""An `AsyncConsumer` that is open when an exception ends its loop and process."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal

from kohort import AsyncConsumer

kept: list[AsyncConsumer] = []


async def main(
    bootstrap: str, group: str, topic: str, protocol: Literal["classic", "consumer"]
) -> None:
    """Join, and fail."""
    consumer = AsyncConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, group_protocol=protocol
    )
    kept.append(consumer)
    while not consumer.assignment():
        await consumer.poll(100)
    raise ArithmeticError


if __name__ == "__main__":
    arguments: Any = sys.argv[1:]
    asyncio.run(main(*arguments))
