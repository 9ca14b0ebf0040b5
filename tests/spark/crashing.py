"""Brokers that die and start again at their address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kohort.broker import EmbeddedBroker
from tests.real_kafka.broker import RealKafka, free_ports


class Broker(Protocol):
    """What a test does with one."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> object: ...

    def kill(self) -> None: ...


class _Embedded:
    """It stops in order: its thread cannot be killed."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._broker = EmbeddedBroker(folder, port=port)

    def start(self) -> None:
        self._broker.start()

    def kill(self) -> None:
        self._broker.stop()


@contextmanager
def crashing(kind: str, folder: Path) -> Iterator[Broker]:
    """A running broker, `embedded` or `kafka`."""
    if kind == "kafka":
        with RealKafka(folder) as kafka:
            yield kafka
        return
    broker = _Embedded(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
