"""Records that the broker does not acknowledge (acks=0): delivered ones have left the process."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

import pytest

from kohort import AsyncProducer, Producer
from kohort.errors import KohortError
from tests.broker.processes import BrokerProcess
from tests.client.producer_scenarios import read_all
from tests.client.programs.run import run
from tests.client.programs.unanswered import COUNT, ENDS, LARGE
from tests.real_kafka.foreign import new_topic

# More than the operating system buffers for a broker that does not read.
MANY = 60


def numbers(bootstrap: str, topic: str) -> list[int]:
    return [int((value or b"")[:4]) for _, value in read_all(bootstrap, topic)]


@pytest.mark.parametrize("end", ENDS)
def test_what_was_delivered_is_in_the_log(bootstrap: str, end: str) -> None:
    topic = new_topic(bootstrap)
    done = run("unanswered", end, bootstrap, topic)
    assert done.returncode == 0, done.stderr
    assert numbers(bootstrap, topic) == list(range(COUNT)), done.stderr
    assert "lost" not in done.stderr


def test_an_async_producer_that_is_closed_has_sent_all(bootstrap: str) -> None:
    topic = new_topic(bootstrap)

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, acks=0) as producer:
            for number in range(COUNT):
                _ = await producer.send(topic, b"%04d" % number + bytes(LARGE))

    asyncio.run(send())
    assert numbers(bootstrap, topic) == list(range(COUNT))


def test_what_cannot_be_sent_in_time_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(tmp_path) as broker:
        topic = new_topic(broker.bootstrap_servers)
        with Producer(bootstrap_servers=broker.bootstrap_servers, acks=0, linger_ms=0) as producer:
            producer.send(topic, b"first").result(60)
            broker.process.send_signal(signal.SIGSTOP)
            try:
                futures = [producer.send(topic, bytes(LARGE // 2)) for _ in range(MANY)]
                with caplog.at_level(logging.WARNING, "kohort.client"):
                    producer.close(timeout=0.5)
                assert all(each.done() for each in futures)
                failed = [each for each in futures if each.exception(0) is not None]
            finally:
                broker.process.send_signal(signal.SIGCONT)
    assert failed
    assert all(isinstance(each.exception(0), KohortError) for each in failed)
    assert f"{len(failed)} records were not acknowledged in 0.5 s" in caplog.text
