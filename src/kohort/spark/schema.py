"""The columns of the source: those of Spark's own Kafka source."""

from __future__ import annotations

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


def source_schema(include_headers: bool) -> str:
    """Return the schema in Spark's DDL.

    Args:
        include_headers: Whether there is a column `headers`.
    """
    return f"{COLUMNS}, {HEADERS}" if include_headers else COLUMNS
