"""The broker as a process: `python -m kohort.broker`, also used by `kohort broker`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kohort.broker.config import BrokerConfig
from kohort.broker.faults import Faults
from kohort.broker.net.advertised import shown
from kohort.broker.net.security import Security
from kohort.broker.net.server import Broker
from kohort.errors import ConfigError, KohortError
from kohort.output import silence_out, write_out
from kohort.values import defaults

logger = logging.getLogger(__name__)

# Thresholds of the garbage collector: new objects, and collections of the younger generation.
_GC_YOUNG, _GC_MIDDLE, _GC_OLD = 2_000, 1, 125_000
# How long the thread that computes a target assignment may run while the loop has work. The loop
# requests its turn again after every response that it sends.
_SWITCH_S = 0.0002
# Settings that are text although their default is None.
_TEXTS = frozenset({"advertised"})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kohort broker",
        description="A single-node Kafka-compatible broker for tests and demos.",
    )
    made.add_argument("--data", type=Path, required=True, help="data directory; created if missing")
    made.add_argument("--port", type=int, default=0, help="0 uses a free port")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument(
        "--allow-remote",
        action="store_true",
        help="permit an address that other machines can reach, without authentication",
    )
    made.add_argument(
        "--advertised",
        metavar="HOST[:PORT]",
        default=None,
        help="address that clients are told to connect to; default: the address listened on, or"
        " this machine's name",
    )
    made.add_argument(
        "--flush-interval-ms", type=int, default=None, help="interval of fsyncs; default: never"
    )
    made.add_argument(
        "--protocols",
        metavar="NAMES",
        default="classic,consumer",
        help="group protocols to serve, among classic, consumer and draft (default: %(default)s)",
    )
    made.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        help="inject the faults of this TOML file, see docs/testing.md",
    )
    made.add_argument(
        "--security",
        type=Path,
        metavar="FILE",
        help="require TLS or passwords as in this TOML file, see docs/broker.md",
    )
    made.add_argument(
        "--client-files",
        type=Path,
        metavar="FOLDER",
        help="write client settings for each user to files in this folder",
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
        ConfigError: One has another form, or a value of the wrong type.
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
        raise ConfigError(f"{key}={text!r} is not an integer") from None


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
            "security": None if options.security is None else Security.from_file(options.security),
        }
        config = BrokerConfig.of({**named, **settings(options.set)})
        faults = Faults()
        if options.faults is not None:
            faults.load(options.faults)
        asyncio.run(_serve(options.data, config, faults, options.client_files))
    except KohortError as error:
        with suppress(OSError, AttributeError):  # standard error may be closed, too
            sys.stderr.write(f"kohort broker: {error}\n")
        return 1
    return 0


async def _serve(
    data: Path, config: BrokerConfig, faults: Faults, client_files: Path | None
) -> None:
    # The broker's data are trees of values, which are freed with the last reference. The collector
    # would traverse all of them again and again while requests wait: 0.1 s with a group of 5,000
    # members. So old objects are rarely traversed, and new ones in small portions.
    gc.set_threshold(_GC_YOUNG, _GC_MIDDLE, _GC_OLD)
    sys.setswitchinterval(_SWITCH_S)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    broker = Broker(data, config, lambda _: None, faults)
    await broker.start()
    try:
        if client_files is not None:
            _write_settings(config.security, client_files, broker.address)
        listens = shown(config.host, broker.port)
        also = "" if listens == broker.address else f", listening on {listens}"
        _announce(f"kohort broker ready on {broker.address}{also}")
        await stopping.wait()
    finally:
        await broker.stop()


def _write_settings(security: Security | None, folder: Path, address: str) -> None:
    if security is None:
        raise ConfigError("--client-files needs --security: without it, clients need no files")
    security.write_settings(folder, address)


def _announce(line: str) -> None:
    """Print a line on standard output; the broker serves even if that fails."""
    try:
        write_out(line)
    except OSError as error:
        logger.warning("cannot write the line %r to standard output: %s", line, error.strerror)
        silence_out()
