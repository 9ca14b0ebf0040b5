"""Spark against Apache Kafka with SASL_SSL: the options reach the driver and the executors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.client import AdminClient, NewTopic
from tests.real_kafka.secured import PASSWORD, USER, SecuredKafka
from tests.spark.sessions import MARKS, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS
ROWS = 30

spark = pytest.fixture(scope="module")(session)


@pytest.fixture(scope="module")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured-kafka")) as kafka:
        yield kafka


def options(kafka: SecuredKafka) -> dict[str, str]:
    """As for Spark's own source; the certificates of the authority are in a PEM file."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": kafka.addresses["SASL_SSL"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.authority.ca),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
    }


def test_write_read_and_stream(
    spark: SparkSession,
    secured_kafka: SecuredKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic, group = f"t-{uuid.uuid4().hex}", f"g-{uuid.uuid4().hex}"
    settings = options(secured_kafka)
    with AdminClient(**secured_kafka.as_user("SASL_SSL", "SCRAM-SHA-512")) as admin:
        admin.create_topics([NewTopic(topic, 2)])
        rows = spark.range(ROWS).selectExpr("cast(id as string) key", "cast(id as string) value")
        rows.write.format("kohort").options(**settings, topic=topic).mode("append").save()

        reading = {**settings, "subscribe": topic, "startingOffsets": "earliest"}
        frame = spark.read.format("kohort").options(**reading).load()
        assert sorted(int(row.value) for row in frame.collect()) == list(range(ROWS))

        streamed = {**reading, "kafka.group.id": group}
        stream = spark.readStream.format("kohort").options(**streamed).load()
        query = (
            stream.selectExpr("cast(value as string) value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(300)
        assert query.exception() is None
        offsets = admin.list_group_offsets(group)
    assert spark.read.parquet(str(tmp_path / "table")).count() == ROWS
    assert sum(each.offset for each in offsets.values()) == ROWS
    written = (each for each in (tmp_path / "checkpoint").rglob("*") if each.is_file())
    assert all(PASSWORD.encode() not in each.read_bytes() for each in written)
    out, err = capfd.readouterr()
    assert PASSWORD not in out + err
