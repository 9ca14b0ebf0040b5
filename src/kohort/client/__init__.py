"""Kafka's clients: consumers and producers, blocking and for asyncio, and an admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.client.admin.acl_values import AclBinding, AclBindingFilter
    from kohort.client.admin.aio import AsyncAdminClient
    from kohort.client.admin.api import AdminClient
    from kohort.client.admin.values import (
        ConfigEntry,
        ConfigResource,
        GroupDescription,
        GroupListing,
        NewTopic,
        OffsetReset,
    )
    from kohort.client.config.settings import AdminSettings, ConsumerSettings, ProducerSettings
    from kohort.client.consumer.aio import AsyncConsumer
    from kohort.client.consumer.api import Consumer
    from kohort.client.consumer.commits.offsets import OffsetAndTimestamp
    from kohort.client.consumer.listener import RebalanceListener
    from kohort.client.consumer.records import ConsumerRecord
    from kohort.client.producer.aio import AsyncProducer
    from kohort.client.producer.api import Producer, RecordMetadata
    from kohort.client.producer.arrow.delivery import (
        ArrowDelivery,
        ArrowDeliveryError,
        ArrowDeliveryFuture,
        PartitionRows,
        RowsFailure,
    )
    from kohort.client.producer.delivery_future import DeliveryFuture

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AdminClient",
    "AdminSettings",
    "ArrowDelivery",
    "ArrowDeliveryError",
    "ArrowDeliveryFuture",
    "AsyncAdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "DeliveryFuture",
    "GroupDescription",
    "GroupListing",
    "NewTopic",
    "OffsetAndTimestamp",
    "OffsetReset",
    "PartitionRows",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "RecordMetadata",
    "RowsFailure",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "AclBinding": ".admin.acl_values",
            "AclBindingFilter": ".admin.acl_values",
            "AdminClient": ".admin.api",
            "ConfigEntry": ".admin.values",
            "ConfigResource": ".admin.values",
            "GroupDescription": ".admin.values",
            "GroupListing": ".admin.values",
            "NewTopic": ".admin.values",
            "OffsetReset": ".admin.values",
            "ArrowDelivery": ".producer.arrow.delivery",
            "ArrowDeliveryError": ".producer.arrow.delivery",
            "ArrowDeliveryFuture": ".producer.arrow.delivery",
            "PartitionRows": ".producer.arrow.delivery",
            "RowsFailure": ".producer.arrow.delivery",
            "AsyncAdminClient": ".admin.aio",
            "AsyncConsumer": ".consumer.aio",
            "AsyncProducer": ".producer.aio",
            "Consumer": ".consumer.api",
            "DeliveryFuture": ".producer.delivery_future",
            "RebalanceListener": ".consumer.listener",
            "OffsetAndTimestamp": ".consumer.commits.offsets",
            "Producer": ".producer.api",
            "RecordMetadata": ".producer.api",
            "ConsumerRecord": ".consumer.records",
            "AdminSettings": ".config.settings",
            "ConsumerSettings": ".config.settings",
            "ProducerSettings": ".config.settings",
        },
    )
