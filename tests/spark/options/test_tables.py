from __future__ import annotations

import pytest

from kohort.spark.options.schema import source_schema
from kohort.spark.options.tables import is_table, table_options, with_options, with_table_options
from kohort.spark.options.values import OptionError

# What Spark 4.3 hands over for CREATE TABLE ... OPTIONS (...) TBLPROPERTIES (team = ...).
CREATED = {
    "comment": "c",
    "kafka.bootstrap.servers": "h:1",
    "option.kafka.bootstrap.servers": "h:1",
    "option.subscribe": "a",
    "owner": "root",
    "provider": "kohort",
    "subscribe": "a",
    "team": "delays",
}
GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
SCHEMA = source_schema(("value", "offset"))


def test_the_options_of_a_table_are_those_that_spark_names_twice() -> None:
    assert is_table(CREATED)
    assert table_options(CREATED) == GIVEN
    assert not is_table(GIVEN)


def test_a_catalogue_may_name_them_once() -> None:
    assert table_options({**GIVEN, "provider": "kohort", "owner": "root"}) == GIVEN


def test_options_travel_with_the_columns() -> None:
    columns = with_options(SCHEMA, GIVEN)
    assert columns.fieldNames() == ["value", "offset"]
    assert with_table_options({}, columns) == GIVEN
    assert with_table_options({"Subscribe": "b"}, columns) == {**GIVEN, "subscribe": "b"}
    assert with_table_options(GIVEN, None) == GIVEN
    assert with_table_options(GIVEN, SCHEMA) == GIVEN


def test_a_table_without_its_options_is_told_apart() -> None:
    with pytest.raises(OptionError, match="Create it without columns"):
        with_table_options({}, SCHEMA)


@pytest.mark.parametrize("name", ["sasl.jaas.config", "ssl.key.password", "ssl.keystore.key"])
def test_a_table_keeps_no_secret(name: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{name} cannot be an option of a table"):
        with_options(SCHEMA, {**GIVEN, f"kafka.{name}": "x"})
