"""A broker that is stopping closes new connections, and does not leave them to the collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
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


LEFT_RUNNING = """
from kohort import EmbeddedBroker, Producer

broker = EmbeddedBroker().start()
with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    producer.send("topic", b"value").result()
"""


def test_the_end_of_the_process_removes_the_temporary_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", LEFT_RUNNING], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
