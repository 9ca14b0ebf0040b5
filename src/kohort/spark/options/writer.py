"""The options of the writer: Spark's names where Spark's own Kafka writer has the option."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kohort.errors import ConfigError
from kohort.spark.options.source import OPTIONS, SPARK_ONLY, OptionError, unknown_option

WRITE_OPTIONS = ("topic", "includeHeaders")

# Options that Spark itself adds to a sink and to a table.
SPARKS_OWN = frozenset(
    {
        "checkpointlocation", "collation", "comment", "external", "is_managed_location",
        "location", "outputmode", "owner", "path", "provider", "queryname", "table_type",
    }
)  # fmt: skip

# Kafka settings that conflict with the writer, and the alternatives.
REFUSED = {
    "key.serializer": "keys are strings or bytes, which are written as they are; encode them with "
    "DataFrame operations",
    "value.serializer": "values are strings or bytes, which are written as they are; encode them "
    "with DataFrame operations",
    "transactional.id": "the writer makes no transactions: each row is written at least once. "
    "Leave it out",
}

CLIENT_ID = "kohort-spark-writer"


class WriteOptions(Struct, frozen=True, kw_only=True):
    """The checked options of one `save()` or `start()`.

    Attributes:
        topic: The topic of all rows; None: the column `topic` gives it.
        settings: Producer settings by Kafka's own names, without the prefix `kafka.`. They may
            contain secrets, so no text about these options shows them.
    """

    topic: str | None = None
    settings: Mapping[str, str]

    def __repr__(self) -> str:
        """Name the settings without their values."""
        return f"WriteOptions(topic={self.topic!r}, settings={sorted(self.settings)})"


def parse_write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse and check the options of a write.

    Options for reading are ignored, because a table in the catalog has both.

    Args:
        raw: Options as Spark passes them; their case does not matter.

    Raises:
        OptionError: An option is invalid; the message names it and the remedy.
    """
    options = {key.lower(): value for key, value in raw.items()}
    _refuse_unknown(options)
    settings = {
        key.removeprefix("kafka."): value
        for key, value in options.items()
        if key.startswith("kafka.")
    }
    if not settings.get("bootstrap.servers", "").strip():
        raise OptionError(
            "kafka.bootstrap.servers is required: host:port of one or more brokers. Spark gives a "
            "write none of the options of a table in its catalogue: repeat them, as in INSERT INTO "
            "t WITH ('kafka.bootstrap.servers' = '...', 'topic' = '...') SELECT ..., or in "
            "df.writeTo(t).option(...)"
        )
    settings.setdefault("client.id", CLIENT_ID)
    _check_settings(settings)
    _check_flag("includeHeaders", options)
    return WriteOptions(topic=_topic(options), settings=settings)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*WRITE_OPTIONS, *OPTIONS, *SPARK_ONLY)}
    for key in options:
        if not (key in known or key in SPARKS_OWN or key.startswith(("kafka.", "option."))):
            raise unknown_option(key, WRITE_OPTIONS)


def _check_settings(settings: Mapping[str, str]) -> None:
    from kohort.client.config.definitions import ProducerConfig, make_from_kafka

    for key in settings:
        if key in REFUSED:
            raise OptionError(f"kafka.{key} is not supported: {REFUSED[key]}")
    if settings.get("acks", "").strip() == "0":
        raise OptionError(
            "kafka.acks=0 is not supported: no broker would say that it has the rows, and a task "
            "returns only when all of its rows are acknowledged. Leave it out, or set 1 and "
            "kafka.enable.idempotence=false"
        )
    try:
        make_from_kafka(ProducerConfig, settings)
    except ConfigError as error:
        raise OptionError(f"kafka.*: {error}") from error


def _check_flag(name: str, options: Mapping[str, str]) -> None:
    """Check a Spark option that has no effect: a column `headers` is always written."""
    text = options.get(name.lower(), "true")
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {text!r}")


def _topic(options: Mapping[str, str]) -> str | None:
    from kohort.client.config.arguments import topic

    text = options.get("topic")
    if text is None:
        return None
    try:
        return topic(text.strip())
    except ValueError as error:
        raise OptionError(f"topic: {error}") from error
