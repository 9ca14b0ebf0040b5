"""Kafka consumer groups for Python and Spark.

Clients and the embedded broker are loaded when they are first asked for, so that a broker starts
without the libraries of the client, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import (
    ConfigError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    ProtocolError,
    RecordDeserializationError,
    RemoteProtocolError,
)
from kohort.installation import InstallationError
from kohort.lazy import importer
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.broker import EmbeddedBroker
    from kohort.client import (
        AdminClient,
        AsyncConsumer,
        AsyncProducer,
        Consumer,
        ConsumerRecord,
        Producer,
        RebalanceListener,
    )

__version__ = "0.1.0"

__all__ = [
    "AdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerRecord",
    "EmbeddedBroker",
    "Producer",
    "RebalanceListener",
    # values
    "OffsetAndMetadata",
    "TopicPartition",
    # errors
    "ConfigError",
    "InstallationError",
    "KafkaError",
    "KohortError",
    "LocalProtocolError",
    "ProtocolError",
    "RecordDeserializationError",
    "RemoteProtocolError",
    "__version__",
]

__getattr__ = importer(
    __name__,
    {"EmbeddedBroker": "kohort.broker"}
    | dict.fromkeys(
        [
            "AdminClient",
            "AsyncConsumer",
            "AsyncProducer",
            "Consumer",
            "ConsumerRecord",
            "Producer",
            "RebalanceListener",
        ],
        "kohort.client",
    ),
)
