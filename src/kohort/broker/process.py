"""The broker as a process: `python -m kohort.broker`, also behind `kohort broker`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from kohort.broker.advertised import shown
from kohort.broker.config import BrokerConfig
from kohort.broker.server import Broker
from kohort.errors import ConfigError, KohortError
from kohort.values import defaults

# Objects, and collections of the next younger generation, between two collections.
_GC_YOUNG, _GC_MIDDLE, _GC_OLD = 2_000, 1, 125_000
# How long the thread that makes a target assignment may go on when the loop has something to do.
# The loop asks for its turn anew after every answer that it sends.
_SWITCH_S = 0.0002
# Settings whose values are text, though their default is none.
_TEXTS = frozenset({"advertised"})


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
        "--advertised",
        metavar="HOST[:PORT]",
        default=None,
        help="address that clients are told to connect to; default: what is listened on, or this"
        " machine's name",
    )
    made.add_argument(
        "--flush-interval-ms", type=int, default=None, help="fsync this often; default: never"
    )
    made.add_argument(
        "--protocols",
        metavar="NAMES",
        default="classic,consumer",
        help="group protocols to serve, of classic, consumer and draft (default: %(default)s)",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting, by Kafka's name: --set group.initial.rebalance.delay.ms=3000",
    )
    return made


def settings(assignments: Sequence[str]) -> dict[str, object]:
    """Read settings of the form `name=value`, with dots or underscores in the name.

    Raises:
        ConfigError: One has another form, or its value is not of the setting's kind.
    """
    known = defaults(BrokerConfig)
    found: dict[str, object] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{assignment!r} is not of the form NAME=VALUE")
        key = name.strip().replace(".", "_")
        found[key] = _value(key, value.strip(), known.get(key))
    return found


def _value(key: str, text: str, default: object) -> object:
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ConfigError(f"{key}={text!r} is neither true nor false")
        return text == "true"
    if isinstance(default, str) or key in _TEXTS:
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r} is not a whole number") from None


def main() -> int:
    """Run until SIGTERM or SIGINT; print one line when clients can connect."""
    options = parser().parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        named = {
            "host": options.host,
            "port": options.port,
            "allow_remote": options.allow_remote,
            "advertised": options.advertised,
            "flush_interval_ms": options.flush_interval_ms,
            "protocols": tuple(name.strip() for name in options.protocols.split(",")),
        }
        config = BrokerConfig.of({**named, **settings(options.set)})
        asyncio.run(_serve(options.data, config))
    except KohortError as error:
        sys.stderr.write(f"kohort broker: {error}\n")
        return 1
    return 0


async def _serve(data: Path, config: BrokerConfig) -> None:
    # What the broker keeps are trees of values, which go when the last reference to them does. The
    # collector would look through them all again and again, and everybody would wait meanwhile:
    # a tenth of a second with a group of 5,000 members. What is new it looks at in small portions.
    gc.set_threshold(_GC_YOUNG, _GC_MIDDLE, _GC_OLD)
    sys.setswitchinterval(_SWITCH_S)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    broker = Broker(data, config, lambda _: None)
    await broker.start()
    listens = shown(config.host, broker.port)
    also = "" if listens == broker.address else f", listening on {listens}"
    sys.stdout.write(f"kohort broker ready on {broker.address}{also}\n")
    sys.stdout.flush()
    await stopping.wait()
    await broker.stop()
