"""Kafka consumer groups for Python and Spark.

Clients and the embedded broker are loaded when they are first asked for, so that a broker starts
without the libraries of the client, and the other way round.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kohort.errors import (
    ConfigError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
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
    "KafkaError",
    "KohortError",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "__version__",
]

_LOADED_LATER = {"EmbeddedBroker": "kohort.broker"} | dict.fromkeys(
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
)


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module 'kohort' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LOADED_LATER[name]), name)
    globals()[name] = value
    return value
