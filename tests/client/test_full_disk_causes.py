"""Why records are not written when the broker's disk is full."""

from __future__ import annotations

from pathlib import Path

from kohort import Producer
from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode, KafkaError, RequestTimedOutError
from tests.broker.full_disks import full_disk

COUNT = 40


def test_records_behind_a_refused_one_have_its_cause(tmp_path: Path) -> None:
    """The broker refuses them for their sequence numbers, which is only a consequence."""
    with (
        EmbeddedBroker(tmp_path) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            linger_ms=0,
            batch_size=1,
            request_timeout_ms=1_000,
            delivery_timeout_ms=2_000,
        ) as producer,
    ):
        broker.create_topic("t", 1)
        producer.send("t", b"first").result(60)
        with full_disk():
            futures = [producer.send("t", b"%d" % number) for number in range(COUNT)]
            errors = [each.exception(60) for each in futures]
    assert all(isinstance(each, RequestTimedOutError) for each in errors)
    causes = [each.__cause__ for each in errors if each is not None]
    codes = {each.code for each in causes if isinstance(each, KafkaError)}
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
