"""Getting the producer id of an idempotent producer (KIP-98)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kohort.client.config.definitions import ProducerConfig
from kohort.client.net.backoff import Backoff, is_denied, needs_help
from kohort.client.net.cluster import Cluster
from kohort.client.producer.batch import Identity
from kohort.client.producer.delivery import broken
from kohort.errors import KafkaError, KohortError, RemoteProtocolError, with_right
from kohort.wire.messages.producer_ids import InitProducerIdRequest

_MAX_INT32: Final = 0x7FFFFFFF
# Since Kafka 2.8, permission to write to any topic is sufficient (KIP-679).
_RIGHT: Final = "WRITE to the topic, or before Kafka 2.8 to IDEMPOTENT_WRITE in"


class InitProducerId:
    """Requests a producer id in the background.

    A missing permission does not end it: it asks again when later records arrive.

    Args:
        config: Settings.
        cluster: The brokers.
        done: Called with the outcome, and whether records were waiting when the request began.

    Attributes:
        trouble: Why the last attempt failed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        done: Callable[[Identity | KohortError, bool], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._done = done
        self._is_refused = False
        self.task: asyncio.Task[None] | None = None
        self.trouble: KohortError | None = None

    def ask(self, *, is_wanted: bool) -> None:
        """Request an id unless a request is running; after a refusal, only if records wait.

        Args:
            is_wanted: Whether records wait.
        """
        if self.task is None and (is_wanted or not self._is_refused):
            self.task = asyncio.create_task(self._ask(is_wanted))

    async def _ask(self, is_wanted: bool) -> None:
        try:
            outcome: Identity | KohortError
            outcome = await identity_of(self._config, self._cluster, self._note)
        except KohortError as error:
            outcome = error
        self._is_refused = isinstance(outcome, KohortError) and is_denied(outcome)
        if self._is_refused:
            self.task = None  # the permission may be granted before the next record
        self._done(outcome, is_wanted)

    def _note(self, error: KohortError) -> None:
        self.trouble = error


async def identity_of(
    config: ProducerConfig, cluster: Cluster, note: Callable[[KohortError], None]
) -> Identity:
    """Ask the brokers for a producer id until one is assigned.

    Args:
        config: Settings.
        cluster: The brokers.
        note: Called with the error of each failed attempt.

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
        except Exception as error:  # noqa: BLE001  # a bug; it is logged
            cluster.incidents.note_defect("asking for a producer id", error)
            note(broken(error))
        await asyncio.sleep(pause.next_s())


async def _asked(cluster: Cluster) -> Identity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_MAX_INT32)
    answer = await cluster.send_any(request)
    if answer.error_code:
        text = with_right(answer.error_code, "no producer id", _RIGHT)
        raise KafkaError(answer.error_code, text)
    return Identity(answer.producer_id, answer.producer_epoch)
