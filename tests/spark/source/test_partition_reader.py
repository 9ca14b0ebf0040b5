"""What the executors read of a batch, planned and read call by call, on both brokers."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.spark.options.source import parse_options
from kohort.spark.source.datasource import KohortDataSource
from kohort.spark.source.fetch.ranges import RangeLostError
from kohort.spark.source.partition_reader import (
    READ_AHEAD_FROM,
    RangePartition,
    ids_in,
    read_task,
    tasks_of,
)
from kohort.types import TopicPartition
from tests.client.range_scenarios import id_of, make_anew
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic
from tests.spark.playing import produce

BROKERS = ["embedded", "kafka"]

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}


@pytest.fixture(params=BROKERS)
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        embedded: str = request.getfixturevalue("bootstrap")
        return embedded
    kafka: RealKafka = request.getfixturevalue("real_kafka")
    return kafka.bootstrap_servers


def given(servers: str, topic: str, **more: str) -> dict[str, str]:
    """Options of a batch read; `__` stands for a dot."""
    return {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def load(
    servers: str, topic: str, schema: Sequence[str] = (), **more: str
) -> tuple[list[RangePartition], list[pa.RecordBatch]]:
    """The tasks of a batch read and what they read, as executors do: from pickled objects."""
    source = KohortDataSource(given(servers, topic, **more))
    names = schema or source.schema().fieldNames()
    struct = StructType([StructField(name, TYPES[name]) for name in names])
    reader = source.reader(struct)
    tasks = reader.partitions()
    batches = []
    for task in tasks:
        there = pickle.loads(pickle.dumps(reader))
        batches += list(there.read(pickle.loads(pickle.dumps(task))))
    expected = to_arrow_schema(struct, timezone="UTC")
    assert all(batch.schema.equals(expected) for batch in batches)
    return [task for task in tasks if isinstance(task, RangePartition)], batches


def values(batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch["value"].to_pylist()]


def numbered(counts: Sequence[int]) -> list[bytes]:
    return sorted(b"value %d" % number for count in counts for number in range(count))


def test_many_small_partitions_are_one_task(servers: str) -> None:
    topic = new_topic(servers, 20)
    counts = [2] * 19 + [0]
    produce(servers, topic, dict(enumerate(counts)))
    (task,), batches = load(servers, topic)
    assert len(task.pieces) == 19
    assert sorted(values(batches)) == numbered(counts)


def test_a_hot_partition_is_split_when_asked(servers: str) -> None:
    topic = new_topic(servers, 2)
    produce(servers, topic, {0: 400, 1: 4})
    tasks, batches = load(servers, topic, minPartitions="5")
    assert [[piece.size for piece in task.pieces] for task in tasks] == [
        [100],
        [100],
        [100],
        [100],
        [4],
    ]
    assert sorted(values(batches)) == numbered([400, 4])
    tasks, batches = load(servers, topic, maxRecordsPerPartition="150")
    assert max(sum(piece.size for piece in task.pieces) for task in tasks) <= 150
    assert sorted(values(batches)) == numbered([400, 4])


def test_only_wanted_columns_are_there(servers: str) -> None:
    topic = new_topic(servers)
    produce(servers, topic, {0: 10})
    _, (batch,) = load(servers, topic, columns="offset,value")
    assert batch.schema.names == ["offset", "value"]
    _, (batch,) = load(servers, topic, ["value", "headers"])
    assert batch.to_pylist() == [
        {"value": each, "headers": None} for each in [b"value %d" % number for number in range(10)]
    ]


def test_a_task_reads_by_the_ids_of_the_manifest(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(servers)
    produce(servers, topic, {0: 10})
    ids = ids_in({"ids": {topic: str(id_of(servers, topic))}})
    ranges = {TopicPartition(topic, 0): (2, 8)}
    raw = given(servers, topic, kafka__default__api__timeout__ms="1000")
    strict, lenient = (parse_options({**raw, "failOnDataLoss": each}) for each in ("true", "false"))
    (task,) = tasks_of(ranges, strict, ids)
    assert values(read_task(strict, task, ["value"])) == numbered([10])[2:8]
    make_anew(servers, topic)
    produce(servers, topic, {0: 10})
    with pytest.raises(RangeLostError, match=f"topic {topic} was deleted and recreated"):
        list(read_task(strict, task, ["value"]))
    assert not list(read_task(lenient, task, ["value"]))
    assert f"6 records of {topic}-0 (offsets 2 to 7) are lost" in caplog.text


def test_old_manifests_name_no_ids() -> None:
    assert ids_in({"epoch": 1}) == {}
    assert ids_in({"ids": {"t": ""}}) == {}
    one = uuid.uuid4()
    assert ids_in({"ids": {"t": str(one)}}) == {"t": one}


def test_a_large_task_is_read_ahead_and_ends_early(servers: str) -> None:
    topic = new_topic(servers)
    produce(servers, topic, {0: READ_AHEAD_FROM})
    small = given(servers, topic, kafka__max__partition__fetch__bytes="200000")
    options = parse_options(small)
    (task,) = tasks_of({TopicPartition(topic, 0): (0, READ_AHEAD_FROM)}, options)
    batches = read_task(options, task, ["value"])
    assert next(batches)["value"][0].as_py() == b"value 0"
    batches.close()
    expected = [b"value %d" % number for number in range(READ_AHEAD_FROM)]
    assert values(read_task(options, task, ["value"])) == expected


def test_committed_records_up_to_the_last_stable_offset(real_kafka: RealKafka) -> None:
    servers = real_kafka.bootstrap_servers
    topic = new_topic(servers)

    def transaction(value: bytes) -> Producer:
        producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"t-{uuid.uuid4().hex}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        return producer

    transaction(b"committed").commit_transaction(30)
    transaction(b"aborted").abort_transaction(30)
    opened = transaction(b"open")
    transaction(b"behind").commit_transaction(30)
    committed = {"kafka__isolation__level": "read_committed"}
    (task,), batches = load(servers, topic, **committed)
    assert values(batches) == [b"committed"]
    assert task.pieces[0].end == 4  # where the open transaction begins
    assert values(load(servers, topic)[1]) == [b"committed", b"aborted", b"open", b"behind"]
    opened.commit_transaction(30)
    assert values(load(servers, topic, **committed)[1]) == [b"committed", b"open", b"behind"]
