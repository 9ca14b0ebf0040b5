"""Tables, schemas and messages where Spark itself calls, and patterns compared with Java's."""

from __future__ import annotations

import contextlib
import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    StreamingQueryException,
)

from kohort.broker import EmbeddedBroker
from kohort.spark import KohortDataSource
from kohort.spark.options.java_regex import LEGAL, java_pattern
from kohort.spark.options.source import OptionError
from tests.spark.playing import produce
from tests.spark.sessions import MARKS, small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_sql.py"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose tables are kept in a folder of the test's own."""
    with contextlib.chdir(tmp_path_factory.mktemp("warehouse")), small_session() as session:
        session.dataSource.register(KohortDataSource)
        yield session


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with a topic `flights`: three records and two."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("flights", 2)
        produce(broker.bootstrap_servers, "flights", {0: 3, 1: 2})
        yield broker.bootstrap_servers


@pytest.fixture
def table(spark: SparkSession, flights: str) -> Iterator[ModuleType]:
    """The example, which has created its table."""
    spec = importlib.util.spec_from_file_location("spark_sql", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.create_table(spark, flights)
    yield example
    spark.sql("DROP TABLE flights")


def test_a_table_is_queried_and_followed(
    spark: SparkSession, flights: str, table: ModuleType, tmp_path: Path
) -> None:
    assert table.count_by_partition(spark) == {0: 3, 1: 2}
    assert table.follow(spark, str(tmp_path)) == 5
    assert ends_of_group(flights, "flights-by-sql") == {0: 3, 1: 2}


def ends_of_group(bootstrap: str, group: str) -> dict[int, int]:
    from kohort.client import AdminClient

    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = admin.list_group_offsets(group)
    return {place.partition: position.offset for place, position in found.items()}


def test_options_of_a_query_come_before_those_of_its_table(
    spark: SparkSession, table: ModuleType
) -> None:
    count = 'SELECT count(*) AS n FROM flights WITH (`endingOffsets` = \'{"flights":{"0":1}}\')'
    assert spark.sql(count).first().n == 3  # type: ignore[union-attr]  # it has one row
    read = spark.read.option("assign", '{"flights":[1]}')
    with pytest.raises(AnalysisException, match="only one of subscribe, assign can be given"):
        read.table("flights").count()


def test_properties_and_places_of_a_table_are_left_alone(
    spark: SparkSession, flights: str, tmp_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE placed USING kohort OPTIONS ('kafka.bootstrap.servers' '{flights}', "
        f"'subscribe' 'flights', 'columns' 'offset,value') COMMENT 'all flights' "
        f"TBLPROPERTIES ('team' = 'delays') LOCATION '{tmp_path}'"
    )
    assert spark.table("placed").columns == ["offset", "value"]
    assert spark.table("placed").count() == 5


def test_a_view_has_its_options(spark: SparkSession, flights: str) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW seen_by_view USING kohort OPTIONS ("
        f"'kafka.bootstrap.servers' '{flights}', 'subscribePattern' 'fl.*s$')"
    )
    assert spark.table("seen_by_view").count() == 5


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("", "'subscribe' 'flights', 'startingOfsets' 'x'", "did you mean startingOffsets"),
        ("(value BINARY)", "'subscribe' 'flights'", "Spark does not pass its options on"),
    ],
)
def test_a_table_that_cannot_be_read(
    spark: SparkSession, flights: str, columns: str, options: str, says: str
) -> None:
    spark.sql("DROP TABLE IF EXISTS wrong")

    def create_and_read() -> None:
        given = f"'kafka.bootstrap.servers' '{flights}', {options}"
        spark.sql(f"CREATE TABLE wrong {columns} USING kohort OPTIONS ({given})")
        spark.table("wrong").count()

    with pytest.raises(AnalysisException, match=says):
        create_and_read()


def test_a_schema_of_the_users_own(spark: SparkSession, flights: str) -> None:
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", flights)
    read = reader.option("subscribe", "flights").schema("topic string, offset bigint")
    assert read.load().first() == ("flights", 0)
    with pytest.raises(AnalysisException, match="the schema says value string, and the source"):
        read.schema("value string").load().count()


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (None, {}, r"kafka\.group\.id is required.*Set groupMode=none"),
        (None, {"kafka.group.id": "g", "endingOffsets": "latest"}, "endingOffsets is not valid"),
        ("value string", {"kafka.group.id": "g"}, "the schema says value string"),
        ("flight string", {"kafka.group.id": "g"}, "the schema has a column 'flight'"),
    ],
)
def test_a_stream_that_cannot_be_says_why(
    spark: SparkSession,
    flights: str,
    tmp_path: Path,
    schema: str | None,
    options: dict[str, str],
    says: str,
) -> None:
    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", flights)
    reader = reader.option("subscribe", "flights").options(**options)
    frame = (reader.schema(schema) if schema else reader).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=says) as raised:
        query.awaitTermination(120)
    assert "UnboundLocalError" not in str(raised.value)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_a_range_past_the_end_is_an_error_before_any_task(
    spark: SparkSession, flights: str, name: str
) -> None:
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", flights)
    past = reader.option("subscribe", "flights").option(name, '{"flights":{"0":99}}')
    with pytest.raises(AnalysisException, match="flights-0 holds offsets 0 to 3, and the read is"):
        past.load().count()
    assert past.option("failOnDataLoss", "false").load().count() in (2, 5)


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, flights: str) -> None:
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", flights)
    assert reader.option("subscribePattern", "no-such").load().count() == 0


PIECES = (
    "a", "B", "7", "-", "_", "f", ".", "^", "$", "|", "(a|b)", "(?:ab)", "(?i)", "(?-i)", "(?i:aB)",
    "[a-c]", "[^a-c]", "[a-z&&[^b]]", "[a[b-c]&&[^c]]", "[^a-z&&[b]]", "[]a]", "[a-]", "[-a]",
    r"[\w&&[^\d]]", r"[\p{Upper}_]", r"\p{Alpha}", r"\P{Lu}", r"\pL", r"\p{IsAlphabetic}", r"\d",
    r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G", r"\Qa.b\E", r"\.",
    r"\-", r"\x61", r"\u0042", r"\0101", r"\x{66}", r"\t", r"\R", r"\h", r"(?=a)", "(?!a)",
    "(?<=a)", "(?<!b)", "(?>a*)", r"(?<x>b)\k<x>", r"(a)\1", "&&", "[a&&b]", "[a&b]", "[b&&[a-c]c]",
    "}", "]", "{", "*", ")", "(", "[", "\\", r"\y", r"\2", "é", " ", "[é-ÿ]", r"[\Qa-c\E]", "[a-",
    "(?<x", "(?z)", "[a-c&&[b]&&[^a]]", "[[a]b&&c]",
)  # fmt: skip
REPEATS = ("", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?", "?+", "*+", "{2}+")


def test_patterns_match_where_javas_do(spark: SparkSession) -> None:
    """Accepted patterns match the names that Java's match, and few are refused."""
    dice = random.Random(7)
    patterns = [*PIECES, *(_random_pattern(dice) for _ in range(500))]
    letters = sorted(LEGAL & set("abcfB7._-A"))
    names = ["".join(dice.choices(letters, k=dice.randint(1, 6))) for _ in range(30)]
    differences: dict[str, object] = {}
    refused: list[str] = []
    valid = 0
    for pattern, theirs in zip(patterns, _found_by_java(spark, patterns, names), strict=True):
        valid += theirs is not None
        try:
            matches = java_pattern(pattern).match
        except OptionError:
            refused += [pattern] if theirs is not None else []
            continue
        ours = {name for name in names if matches(name)}
        if ours != theirs:
            differences[pattern] = "refused" if theirs is None else ours ^ theirs
    assert differences == {}
    assert valid > 200
    assert len(refused) < valid / 5, refused


def _random_pattern(dice: random.Random) -> str:
    pieces = [dice.choice(PIECES) + dice.choice(REPEATS) for _ in range(dice.randint(1, 4))]
    return "".join(pieces)


def _found_by_java(
    spark: SparkSession, patterns: list[str], names: list[str]
) -> Iterator[set[str] | None]:
    """The names in which `find` finds each pattern; None for a pattern that Java refuses."""
    jvm: Any = spark.sparkContext._jvm
    listed = jvm.java.util.ArrayList()
    for name in names:
        listed.add(name)
    for pattern in patterns:
        try:
            find = jvm.java.util.regex.Pattern.compile(pattern).asPredicate()
        except IllegalArgumentException:  # PatternSyntaxException is one
            yield None
        else:
            yield set(listed.stream().filter(find).toList())
