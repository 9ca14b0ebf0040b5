"""A web service in the style of FastAPI: a consumer task from startup to shutdown, beside requests.

Requests see the records that the task has read; at shutdown the task is cancelled and awaited, and
leaves the group. The loop is never blocked.

Prints:
    a request sees 50 orders
    the loop was never at work for a second without a pause: True
    after shutdown: members 0, committed {0: 50}
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from kohort import AdminClient, AsyncConsumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


class App:
    """The state of the service."""

    def __init__(self, topic: str) -> None:
        self.topic, self.orders = topic, list[bytes]()


@contextlib.asynccontextmanager
async def lifespan(app: App, consumer: AsyncConsumer) -> AsyncIterator[None]:
    async def consume() -> None:
        async with consumer:
            async for record in consumer:
                app.orders.append(record.value)
                await asyncio.sleep(0)

    task = asyncio.create_task(consume())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def serve(bootstrap: str, protocol: Protocol) -> str:
    app, group, longest = App(topic_with(bootstrap, 50)), unique("service"), 0.0
    consumer = AsyncConsumer(
        app.topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )
    async with lifespan(app, consumer):
        while len(app.orders) < 50:
            before = time.thread_time()  # CPU time of this thread: the machine may be busy
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - before)
        await asyncio.sleep(0.1)
        print(f"a request sees {len(app.orders)} orders")
    print("the loop was never at work for a second without a pause:", longest < 1)
    return group


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    group = asyncio.run(serve(bootstrap, protocol))
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        members = admin.describe_groups([group])[group].members
    print(f"after shutdown: members {len(members)}, committed {stored(bootstrap, group)}")


if __name__ == "__main__":
    start(main)
