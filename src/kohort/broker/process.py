"""The broker as a process: `python -m kohort.broker`, also behind `kohort broker`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from kohort.broker.config import BrokerConfig
from kohort.broker.server import Broker
from kohort.errors import KohortError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kohort broker",
        description="A single-node Kafka-compatible broker for tests and demos.",
    )
    made.add_argument("--data", type=Path, required=True, help="data directory; made if missing")
    made.add_argument("--port", type=int, default=0, help="0 takes a free port")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument(
        "--allow-remote",
        action="store_true",
        help="permit an address that other machines reach; there is no security",
    )
    made.add_argument(
        "--flush-interval-ms", type=int, default=None, help="fsync this often; default: never"
    )
    return made


def main() -> int:
    """Run until SIGTERM or SIGINT; print one line when clients can connect."""
    options = parser().parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = BrokerConfig(
            host=options.host,
            port=options.port,
            allow_remote=options.allow_remote,
            flush_interval_ms=options.flush_interval_ms,
        )
        asyncio.run(_serve(options.data, config))
    except KohortError as error:
        sys.stderr.write(f"kohort broker: {error}\n")
        return 1
    return 0


async def _serve(data: Path, config: BrokerConfig) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    broker = Broker(data, config, lambda _: None)
    await broker.start()
    sys.stdout.write(f"kohort broker ready on {config.host}:{broker.port}\n")
    sys.stdout.flush()
    await stopping.wait()
    await broker.stop()
