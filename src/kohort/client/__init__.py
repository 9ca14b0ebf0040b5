"""Kafka's clients: consumers (blocking and asyncio), producers, and an admin client."""

from __future__ import annotations

from kohort.client.async_consumer import AsyncConsumer
from kohort.client.listener import RebalanceListener
from kohort.client.records import ConsumerRecord

__all__ = [
    "AsyncConsumer",
    "ConsumerRecord",
    "RebalanceListener",
]
