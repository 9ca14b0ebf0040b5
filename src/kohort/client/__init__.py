"""Kafka's clients: consumers and producers, blocking and for asyncio, and an admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.client.acl_values import AclBinding, AclBindingFilter
    from kohort.client.admin import AdminClient
    from kohort.client.admin_values import (
        ConfigEntry,
        ConfigResource,
        GroupDescription,
        GroupListing,
        NewTopic,
        OffsetReset,
    )
    from kohort.client.arrow_delivery import (
        ArrowDelivery,
        ArrowDeliveryError,
        ArrowDeliveryFuture,
        PartitionRows,
        RowsFailure,
    )
    from kohort.client.async_admin import AsyncAdminClient
    from kohort.client.async_consumer import AsyncConsumer
    from kohort.client.async_producer import AsyncProducer
    from kohort.client.consumer import Consumer
    from kohort.client.delivery_future import DeliveryFuture
    from kohort.client.listener import RebalanceListener
    from kohort.client.offsets import OffsetAndTimestamp
    from kohort.client.producer import Producer, RecordMetadata
    from kohort.client.records import ConsumerRecord
    from kohort.client.settings import AdminSettings, ConsumerSettings, ProducerSettings

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

__getattr__ = importer(
    __name__,
    {
        "AclBinding": ".acl_values",
        "AclBindingFilter": ".acl_values",
        "AdminClient": ".admin",
        "ConfigEntry": ".admin_values",
        "ConfigResource": ".admin_values",
        "GroupDescription": ".admin_values",
        "GroupListing": ".admin_values",
        "NewTopic": ".admin_values",
        "OffsetReset": ".admin_values",
        "ArrowDelivery": ".arrow_delivery",
        "ArrowDeliveryError": ".arrow_delivery",
        "ArrowDeliveryFuture": ".arrow_delivery",
        "PartitionRows": ".arrow_delivery",
        "RowsFailure": ".arrow_delivery",
        "AsyncAdminClient": ".async_admin",
        "AsyncConsumer": ".async_consumer",
        "AsyncProducer": ".async_producer",
        "Consumer": ".consumer",
        "DeliveryFuture": ".delivery_future",
        "RebalanceListener": ".listener",
        "OffsetAndTimestamp": ".offsets",
        "Producer": ".producer",
        "RecordMetadata": ".producer",
        "ConsumerRecord": ".records",
        "AdminSettings": ".settings",
        "ConsumerSettings": ".settings",
        "ProducerSettings": ".settings",
    },
)
