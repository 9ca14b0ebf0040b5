"""The README's examples do what it says; tests/system/spark has the one with Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Producer
from kohort.testing import KafkaHarness

README = Path(__file__).parents[2] / "README.md"


def python_blocks(text: str) -> list[str]:
    return [part.split("```")[0] for part in text.split("```python\n")[1:]]


class _Enough(Exception):
    pass


def test_the_consumer_prints_what_is_produced() -> None:
    printed: list[tuple[object, ...]] = []
    done = threading.Event()

    def show(*values: object) -> None:
        printed.append(values)
        done.set()
        raise _Enough

    with EmbeddedBroker() as broker:
        broker.create_topic("flights", 2)
        address = broker.bootstrap_servers
        code = python_blocks(README.read_text())[0].replace("localhost:9092", address)

        def produce() -> None:
            with Producer(bootstrap_servers=address, linger_ms=0) as producer:
                while not done.wait(0.05):
                    producer.send("flights", value=b"AA 17")

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            with pytest.raises(_Enough):
                exec(compile(code, "README.md", "exec"), {"print": show})
        finally:
            done.set()
            thread.join()
    (_, offset, value) = printed[0]
    assert isinstance(offset, int)
    assert value == b"AA 17"


def test_the_test_passes() -> None:
    names: dict[str, Any] = {}
    exec(compile(python_blocks(README.read_text())[1], "README.md", "exec"), names)
    with EmbeddedBroker() as broker:
        harness = KafkaHarness(broker.bootstrap_servers, broker)
        harness.create_topic("orders")
        names["test_each_order_is_read_once"](harness, "orders", "group")
