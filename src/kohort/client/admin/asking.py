"""Ask one specific broker until it answers or time is up."""

from __future__ import annotations

from typing import TypeVar

from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.errors import KohortError
from kohort.wire.codec.schema import Message, Request

R = TypeVar("R", bound=Message)


async def ask_broker(cluster: Cluster, node: int, request: Request[R], deadline: Deadline) -> R:
    """Send a request to one broker until it answers.

    Args:
        cluster: The brokers.
        node: Node id of the broker.
        request: The request, which must be safe to repeat.
        deadline: When to give up.

    Raises:
        KafkaError: The broker is unknown, or time is up; the cause is the last error.
    """
    pause = cluster.retry_backoff()
    async with cluster.within(deadline, f"{type(request).__name__} to broker {node}"):
        while True:
            timeout_ms = max(1, deadline.left_ms(cluster.config.request_timeout_ms))
            try:
                return await cluster.send(node, request, timeout_ms=timeout_ms)
            except KohortError as error:
                if node not in cluster.metadata.nodes:
                    raise
                await cluster.wait_after(error, pause, deadline)
