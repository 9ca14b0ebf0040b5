"""A broker that is stopping closes new connections, and does not leave them to the collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings
from pathlib import Path

from kohort.broker.config import BrokerConfig
from kohort.broker.net.server import Broker

TURNS = 6
DEADLINE_S = 30.0


def test_a_connection_that_comes_as_the_broker_stops_is_closed(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(TURNS):
            asyncio.run(stopped_after(turns, tmp_path / str(turns)))
        gc.collect()
    assert not [str(each.message) for each in left_open]


async def stopped_after(turns: int, folder: Path) -> None:
    """Connect this many turns of the loop after the broker has begun to stop."""
    broker = Broker(folder, BrokerConfig(), lambda _fact: None)
    await broker.start()
    stopping = asyncio.create_task(broker.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    with socket.socket() as client, contextlib.suppress(ConnectionError):
        client.connect(("127.0.0.1", broker.port))  # or the listener is already closed
        await stopping
        client.setblocking(False)
        async with asyncio.timeout(DEADLINE_S):
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    await stopping
