"""A user's own test suite: a broker per session as a fixture, a topic per test, strict warnings.

Warnings are errors there; neither broker nor clients may leave a thread, a socket or a task behind.

Prints:
    3 passed
    exit code 0
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.usage.around import start

SUITE = """
import uuid
import pytest
from kohort import AsyncConsumer, Consumer, EmbeddedBroker, Producer

from tests.usage.around import start

@pytest.fixture(scope="session")
def kafka():
    with EmbeddedBroker() as broker:
        yield broker

@pytest.fixture
def topic(kafka):
    name = f"orders-{uuid.uuid4()}"
    kafka.create_topic(name, partitions=2)
    return name

@pytest.mark.parametrize("count", [1, 100])
def test_what_is_sent_is_read(kafka, topic, count):
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, str(number).encode())
    read = set()
    with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
    ) as consumer:
        while len(read) < count:
            for records in consumer.poll(timeout_ms=1000).values():
                read |= {int(record.value) for record in records}
    assert read == set(range(count))

def test_nothing_is_there_at_first(kafka, topic):
    with Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        assert consumer.poll(timeout_ms=200) == {}
"""


def main(bootstrap: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "test_orders.py")
        suite.write_text(SUITE)
        options = ["-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:randomly"]
        done = subprocess.run(
            [
                sys.executable,
                "-X",
                "dev",
                "-m",
                "pytest",
                *options,
                "--rootdir",
                folder,
                str(suite),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    lines = done.stdout.splitlines()
    print(lines[-1].partition(" in ")[0] if done.returncode == 0 else done.stdout + done.stderr)
    print("exit code", done.returncode)


if __name__ == "__main__":
    start(main)
