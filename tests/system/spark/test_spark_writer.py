"""The writer in Spark itself, beside Spark's own writer and read back by clients not ours."""

from __future__ import annotations

import importlib.util
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from kohort.broker import EmbeddedBroker
from tests.client.producer_scenarios import read_all
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import create_topic, new_topic
from tests.spark.crashing import crashing
from tests.spark.sessions import MARKS, connector_jars, session

with warnings.catch_warnings():
    # It reads its schemas by a call that Python 3.11 alone calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [*MARKS, pytest.mark.timeout(400)]  # other tests may have the processors

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_writer.py"
PARTITIONS = 3


class Record(NamedTuple):
    """What a record has, beside its offset and time."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    yield from session(
        spark__jars=connector_jars(), spark__sql__pyspark__worker__logging__enabled="true"
    )


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        yield kafka.bootstrap_servers
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("embedded")) as broker:
        yield broker.bootstrap_servers


def save(frame: DataFrame, bootstrap: str, source: str = "kohort", **options: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, **options}
    frame.write.format(source).options(**given).mode("append").save()


def read_by_spark(spark: SparkSession, bootstrap: str, topic: str) -> list[Record]:
    """The records as Spark's own source reads them."""
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    return [
        Record(
            row.partition,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple(
                (header.key, None if header.value is None else bytes(header.value))
                for header in row.headers or ()
            ),
        )
        for row in frame.orderBy("partition", "offset").collect()
    ]


def read_by_kafka_python(bootstrap: str, topic: str) -> list[Record]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        wanted = sum(consumer.end_offsets(partitions).values())
        found: list[Any] = []
        while len(found) < wanted:
            found += [each for part in consumer.poll(1_000).values() for each in part]
    finally:
        consumer.close()
    found.sort(key=lambda each: (each.partition, each.offset))
    return [Record(each.partition, each.key, each.value, tuple(each.headers)) for each in found]


def rows(spark: SparkSession) -> DataFrame:
    """Rows of every kind; those without a key name their partition, so that all have one place."""
    return spark.range(0, 600, 1, 3).selectExpr(
        "if(id % 3 = 0, null, concat('key ', id % 40)) key",
        "if(id % 7 = 0, null, cast(concat('größe ', id) AS binary)) value",
        "if(id % 3 = 0, cast(id % 2 AS int), null) partition",
        "if(id % 2 = 0, null, array(named_struct('key', 'é', 'value', X'00FF'),"
        " named_struct('key', 'n', 'value', if(id % 5 = 0, null, X'')))) headers",
        "id",
    )


def test_all_readers_find_what_sparks_own_writer_writes(
    spark: SparkSession, bootstrap: str
) -> None:
    ours, theirs = (new_topic(bootstrap, partitions=PARTITIONS) for _ in range(2))
    save(rows(spark), bootstrap, topic=ours, includeHeaders="true")
    save(rows(spark), bootstrap, "kafka", topic=theirs, includeHeaders="true")
    found = read_by_spark(spark, bootstrap, ours)
    assert Counter(found) == Counter(read_by_spark(spark, bootstrap, theirs))
    assert found == read_by_kafka_python(bootstrap, ours)
    assert len(found) == 600


def test_a_topic_column_spreads_rows_over_topics(spark: SparkSession, bootstrap: str) -> None:
    one, two = new_topic(bootstrap), new_topic(bootstrap)
    frame = spark.range(0, 1_000, 1, 2).selectExpr(
        f"if(id % 4 = 0, '{one}', '{two}') topic", "cast(id AS string) value"
    )
    save(frame, bootstrap)
    for topic, is_fourth in ((one, True), (two, False)):
        found = [int(value or b"") for _, value in read_all(bootstrap, topic)]
        expected = [number for number in range(1_000) if (number % 4 == 0) == is_fourth]
        assert sorted(found) == expected


# What is wrong with the columns of a DataFrame: the columns, and how both writers say it.
WRONG: Mapping[str, tuple[list[str], str]] = {
    "no value": (["'k' key"], "required attribute 'value' not found"),
    "value": (["id value"], "value attribute unsupported type bigint."),
    "key": (["'v' value", "id key"], "key attribute unsupported type bigint."),
    "headers": (["'v' value", "map('a', X'') headers"], "headers attribute unsupported type map<"),
    "partition": (["'v' value", "id partition"], "partition attribute unsupported type bigint."),
    "no topic": (["'v' value"], "topic option required when no 'topic' attribute is present."),
    "topic": (["'v' value", "1 topic"], "topic attribute unsupported type int. topic must be a"),
    "null topic": (["'v' value", "cast(null AS string) topic"], "contains a null topic"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_refused_in_the_words_of_sparks_own_writer(
    spark: SparkSession, bootstrap: str, mistake: str
) -> None:
    columns, says = WRONG[mistake]
    options = {} if "topic" in mistake else {"topic": new_topic(bootstrap)}
    frame = spark.range(3).selectExpr(*columns)
    for source in ("kohort", "kafka"):
        with pytest.raises(Exception, match="(?i)" + says.replace(".", r"\.")) as caught:
            save(frame, bootstrap, source, **options)
        if source == "kohort" and mistake != "null topic":
            assert isinstance(caught.value, AnalysisException), "before any task"


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("overwrite", r'mode."overwrite". is not supported: .* Use mode."append"'),
        ("ignore", 'cannot be written in the "Ignore" mode'),
        ("errorifexists", 'cannot be written in the "ErrorIfExists" mode'),
    ],
)
def test_other_modes_are_refused(spark: SparkSession, mode: str, says: str) -> None:
    frame = spark.range(1).selectExpr("'v' value")
    writer = frame.write.format("kohort").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(AnalysisException, match=says):
        writer.option("topic", "t").mode(mode).save()


def test_an_option_that_nobody_knows_is_named(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="unknown option 'topik'; did you mean topic"):
        save(spark.range(1).selectExpr("'v' value"), "127.0.0.1:1", topik="t")


def test_a_task_that_fails_says_why_and_the_driver_what_stays(
    spark: SparkSession, bootstrap: str
) -> None:
    topic = new_topic(bootstrap)
    frame = spark.range(0, 1, 1, 1).selectExpr("repeat('x', 2000000) value")
    with pytest.raises(PythonException, match=r"(?s)row 0 for .*kafka\.max\.request\.size"):
        save(frame, bootstrap, topic=topic)
    save(spark.range(5).selectExpr("'v' value"), bootstrap, topic=topic)
    said = [line.partition(", and")[0] for line in collected_lines(spark) if topic in line]
    assert said == [
        f"could not write a batch to topic {topic}: 0 of 1 tasks had finished",
        f"wrote a batch: 5 rows, 5 to {topic}",
    ]


def collected_lines(spark: SparkSession) -> list[str]:
    """What Python workers logged, in the order of time; Spark keeps the logs of each apart."""
    return [row.msg for row in spark.tvf.python_worker_logs().orderBy("ts").collect()]


class Stream:
    """A query that writes the lines of files, each file a batch, into a topic."""

    def __init__(self, spark: SparkSession, bootstrap: str, home: Path, topic: str) -> None:
        self._files = home / "lines"
        self._files.mkdir()
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        self._writer = (
            lines.load(str(self._files))
            .writeStream.format("kohort")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.delivery.timeout.ms", "300000")
            .option("kafka.max.block.ms", "300000")
            .option("topic", topic)
            .option("checkpointLocation", str(home / "checkpoint"))
        )

    def add(self, *lines: str) -> None:
        """Add a file; it is there as a whole or not at all."""
        hidden = self._files / f".{uuid.uuid4().hex}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self._files / f"{hidden.name[1:]}.txt")

    def run(self) -> StreamingQuery:
        """Write all files that are there."""
        query = self._writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        return query

    def start(self) -> StreamingQuery:
        """Write what comes until it is stopped."""
        return self._writer.trigger(processingTime="0 seconds").start()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[[str, str], Stream]:
    return lambda bootstrap, topic: Stream(spark, bootstrap, tmp_path, topic)


def test_a_stream_writes_each_batch_and_goes_on_from_its_checkpoint(
    bootstrap: str, stream: Callable[[str, str], Stream]
) -> None:
    topic = new_topic(bootstrap)
    lines = stream(bootstrap, topic)
    lines.add("a", "b")
    lines.add("c")
    query = lines.run()
    assert sorted(progress.sink.numOutputRows for progress in query.recentProgress) == [1, 2]
    lines.add("d")
    lines.run()
    found = Counter(value for _, value in read_all(bootstrap, topic))
    assert found == Counter([b"a", b"b", b"c", b"d"])


def test_totals_of_the_complete_mode_are_appended(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    topic = new_topic(bootstrap)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.txt").write_text("x\ny\nx\n")
    totals = (
        spark.readStream.text(str(tmp_path / "lines"))
        .groupBy("value")
        .count()
        .selectExpr("value key", "cast(count AS string) value")
    )

    def write(mode: str) -> None:
        query = (
            totals.writeStream.format("kohort")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / mode))
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    write("complete")
    assert sorted(read_all(bootstrap, topic)) == [(b"x", b"2"), (b"y", b"1")]
    with pytest.raises(StreamingQueryException, match="kohort does not support Update mode"):
        write("update")


@pytest.mark.parametrize("kind", ["embedded", "kafka"])
def test_a_query_outlives_a_crash_of_the_broker(
    stream: Callable[[str, str], Stream], tmp_path: Path, kind: str
) -> None:
    with crashing(kind, tmp_path / "broker") as broker:
        topic = new_topic(broker.bootstrap_servers)
        lines = stream(broker.bootstrap_servers, topic)
        query = lines.start()
        lines.add("before")
        query.processAllAvailable()
        broker.kill()
        lines.add("meanwhile", "and more")
        broker.start()
        lines.add("after")
        query.processAllAvailable()
        query.stop()
        found = {value for _, value in read_all(broker.bootstrap_servers, topic)}
    assert found == {b"before", b"meanwhile", b"and more", b"after"}


def test_the_example_writes_a_batch_and_a_stream(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "flights", 2)
    create_topic(bootstrap, "delays", 1)
    spec = importlib.util.spec_from_file_location("spark_writer", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.write_flights(spark, bootstrap)
    example.copy_delays(spark, bootstrap, str(tmp_path / "checkpoint"))
    assert sorted(read_all(bootstrap, "delays")) == [
        (b"AA 1", b'{"flight":"AA 1","delay":12}'),
        (b"B6 3", b'{"flight":"B6 3","delay":95}'),
    ]
