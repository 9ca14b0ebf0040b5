"""How a producer becomes one that the brokers know (KIP-98)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kohort.client.config.definitions import ProducerConfig
from kohort.client.net.backoff import Backoff, needs_help
from kohort.client.net.cluster import Cluster
from kohort.client.producer.batch import Identity
from kohort.client.producer.delivery import broken
from kohort.errors import KafkaError, KohortError, RemoteProtocolError, with_right
from kohort.wire.messages.producer_ids import InitProducerIdRequest

_MAX_INT32: Final = 0x7FFFFFFF


async def identity_of(
    config: ProducerConfig, cluster: Cluster, note: Callable[[KohortError], None]
) -> Identity:
    """Ask the brokers for a producer id until there is one.

    Args:
        config: Settings.
        cluster: The brokers.
        note: Called with why an attempt has failed.

    Raises:
        KohortError: Waiting does not help.
    """
    pause = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
    while True:
        try:
            return await _asked(cluster)
        except KohortError as error:
            note(error)
            if needs_help(error) and not isinstance(error, RemoteProtocolError):
                raise
        except Exception as error:  # noqa: BLE001  # a defect; it is logged
            cluster.troubles.note_defect("asking for a producer id", error)
            note(broken(error))
        await asyncio.sleep(pause.next_s())


async def _asked(cluster: Cluster) -> Identity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_MAX_INT32)
    answer = await cluster.send_any(request)
    if answer.error_code:
        text = with_right(answer.error_code, "no producer id", "IDEMPOTENT_WRITE in")
        raise KafkaError(answer.error_code, text)
    return Identity(answer.producer_id, answer.producer_epoch)
