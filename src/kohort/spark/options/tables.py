"""`CREATE TABLE ... USING kohort`: passes a table's options to its reader.

Spark keeps the options of a table in its catalog, and passes them to a Python source only once:
    when the table is created and the source returns its schema. A reader of the table gets only the
    schema (seen in 4.3). So the source writes the options into the metadata of the last column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.spark.options.source import TABLE_KEYS
from kohort.spark.options.values import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

METADATA_KEY = "kohort.options"
_SECRET = re.compile(r"password|secret|token|jaas|\.key$|credential", re.IGNORECASE)
_BOOTSTRAP = "kafka.bootstrap.servers"


def is_table(raw: Mapping[str, str]) -> bool:
    """Whether the options belong to a table that is being created."""
    return "provider" in raw


def table_options(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table without its properties and Spark's additions.

    Args:
        raw: Options as Spark passes them; the user's options appear twice, once with the prefix
            `option.`.
    """
    given = {key for key in raw if f"option.{key}" in raw}
    known = given or raw.keys() - set(TABLE_KEYS)
    return {key: raw[key] for key in sorted(known) if not key.startswith("option.")}


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns of a table, with its options in the last column's metadata.

    Args:
        schema: The columns.
        options: The table's options.

    Raises:
        OptionError: An option is a secret: metadata is visible to all users.
    """
    from pyspark.sql.types import StructField, StructType

    for key in options:
        if _SECRET.search(key):
            raise OptionError(
                f"{key} cannot be an option of a table, whose metadata is no place for a secret: "
                "leave it out, and say spark.read.option(...).table(...) when reading"
            )
    *others, last = schema.fields
    metadata = {**last.metadata, METADATA_KEY: json.dumps(dict(options))}
    return StructType([*others, StructField(last.name, last.dataType, last.nullable, metadata)])


def with_table_options(raw: Mapping[str, str], schema: StructType | None) -> dict[str, str]:
    """Return the options of a read, including those of its table.

    Args:
        raw: Options as Spark passes them; they override the table's.
        schema: Spark's columns; None if there is no table.

    Raises:
        OptionError: Spark did not pass on the options of a table.
    """
    texts = (each.metadata.get(METADATA_KEY) for each in (schema.fields if schema else []))
    kept: dict[str, str] = next((json.loads(text) for text in texts if text), {})
    options = {**kept, **{key.lower(): value for key, value in raw.items()}}
    if schema is not None and _BOOTSTRAP not in options:
        raise OptionError(
            f"{_BOOTSTRAP} is required: host:port of one or more brokers. If this is a table that "
            "names its columns: Spark does not pass its options on. Create it without columns; the "
            "option columns can choose some"
        )
    return options
