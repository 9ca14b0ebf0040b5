"""Kafka consumer groups for Python and Spark.

Clients and the embedded broker are loaded on first use, so that a broker starts without the
client's libraries, and vice versa.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BrokerUnavailableError,
    CommitFailedError,
    ConfigError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    PartialFailureError,
    ProducerFencedError,
    ProtocolError,
    RecordDeserializationError,
    RemoteProtocolError,
    RequestTimedOutError,
    TlsError,
)
from kohort.installation import InstallationError
from kohort.lazy import importer
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.broker import EmbeddedBroker
    from kohort.client import (
        AdminClient,
        AsyncAdminClient,
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
    "AsyncAdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerRecord",
    "EmbeddedBroker",
    "Producer",
    "RebalanceListener",
    # values
    "ConsumerGroupMetadata",
    "OffsetAndMetadata",
    "TopicPartition",
    # errors
    "AbortableTransactionError",
    "AuthenticationError",
    "BrokerUnavailableError",
    "CommitFailedError",
    "ConfigError",
    "InstallationError",
    "KafkaError",
    "KohortError",
    "LocalProtocolError",
    "PartialFailureError",
    "ProducerFencedError",
    "ProtocolError",
    "RecordDeserializationError",
    "RemoteProtocolError",
    "RequestTimedOutError",
    "TlsError",
    "__version__",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {"EmbeddedBroker": "kohort.broker"}
        | dict.fromkeys(
            [
                "AdminClient",
                "AsyncAdminClient",
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
