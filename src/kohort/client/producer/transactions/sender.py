"""The background of a transactional producer: it sends only in transactions, all or nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kohort.client.config.definitions import ProducerConfig
from kohort.client.consumer.commits.offsets import shown
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.versions import PRODUCE_IN_V1
from kohort.client.producer.batch import Batch
from kohort.client.producer.delivery import DEFECT, broken
from kohort.client.producer.sender import Sender
from kohort.client.producer.transactions.errors import abortable, dropped, gate
from kohort.client.producer.transactions.machine import (
    Failed,
    Step,
    Touched,
    TransactionMachine,
    TransactionState,
)
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.types import TopicPartition
from kohort.wire.messages.txn_requests import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)

log = logging.getLogger("kohort.client")

# The broker usually finishes the previous transaction within this time (ms); as in Java.
FIRST_PAUSE_MS = 20


class TransactionalSender(Sender):
    """Sends the records of transactions; arguments as `Sender`.

    Attributes:
        coordinator: The coordinator of the transactional id.
        machine: The producer's state machine.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        notify: Callable[[Callable[[], object]], object],
    ) -> None:
        super().__init__(config, cluster, notify)
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.coordinator = Coordinator(cluster, config.transactional_id, "transactional id")
        self.machine = TransactionMachine()
        self._added: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._adding: asyncio.Task[None] | None = None
        self._not_added: KohortError | None = None
        self._open_or_shut()

    # ----------------------------------------------------------------------------- the machine

    def run(self, event: object) -> Step:
        """Pass an event to the machine; on the loop.

        Raises:
            LocalProtocolError: The call is not allowed now; nothing changes.
        """
        decision = self.machine.decide(event)
        before, after = self.machine.session, decision.session
        self.machine.install(after)
        if after.identity is not None and after.identity != before.identity:
            self._accumulator.renew(after.identity)
        if after.state is not before.state:
            self._changed(after.state)
        return decision.step

    def _changed(self, state: TransactionState) -> None:
        if state is TransactionState.READY:
            self._added.clear()
        if state is TransactionState.FATAL_ERROR:
            self.batches.fatal = self.machine.session.cause
        self._open_or_shut()
        self._wake.set()
        self.buffer_pool.tell()

    def _open_or_shut(self) -> None:
        self.batches.gate = gate(self.transactional_id, self.machine.session)

    def failed(self, error: KohortError) -> None:
        """Note that a record failed, so the transaction must not be committed; for any thread."""
        self._notify(lambda: self.run(Failed(error)))

    def drop(self) -> None:
        """Fail unsent records."""
        self._abandon(self._why_over() or dropped(self.transactional_id))

    # ------------------------------------------------------------------------------ the sender

    def _why_over(self) -> KohortError | None:
        session = self.machine.session
        if session.state is TransactionState.ABORTABLE_ERROR:
            return abortable(self.transactional_id, session)
        if session.state is TransactionState.ABORTING:
            return dropped(self.transactional_id)
        return super()._why_over()

    def _newest(self, has_ids: bool) -> int | None:
        return super()._newest(has_ids) if self.machine.session.has_v2 else PRODUCE_IN_V1

    def _fenced(self, error: KafkaError) -> None:
        """Do nothing: the end of the transaction shows whether another producer has taken over."""

    def _note_failed(self, batch: Batch, error: KohortError) -> None:
        self.run(Failed(error))
        super()._note_failed(batch, error)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leader = super()._leader_of(partition)
        if leader is None or self.machine.session.has_v2 or partition in self._added:
            return leader
        self._wanted.add(partition)
        return None

    def _send_ready(self, now: int) -> None:
        super()._send_ready(now)
        if self._requests and not self.machine.session.is_started:
            self.run(Touched())  # the tasks that send have not started yet
        if self._wanted and (self._adding is None or self._adding.done()):
            self.run(Touched())
            self._adding = asyncio.create_task(self._add_partitions(frozenset(self._wanted)))

    def _trouble(self, batch: Batch) -> KohortError | None:
        if batch.partition in self._wanted:
            return self._not_added or super()._trouble(batch)
        return super()._trouble(batch)

    # -------------------------------------------------------------- version 1 of transactions

    async def _add_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Add partitions to the transaction before records are sent to them."""
        deadline = Deadline(self._config.delivery_timeout_ms)
        try:
            await self._try_to_add(partitions, deadline)
        except KohortError as error:
            self._not_added = error
            self.run(Failed(error))
        except Exception as error:
            log.exception(DEFECT)
            self.run(Failed(broken(error)))
        else:
            self._not_added = None
            self._added |= partitions
        finally:
            self._wanted -= partitions
            self._wake.set()

    async def _try_to_add(self, partitions: frozenset[TopicPartition], deadline: Deadline) -> None:
        identity = self.machine.session.identity
        assert identity is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=_by_topic(partitions),
        )
        pause = Backoff(FIRST_PAUSE_MS, self._config.retry_backoff_max_ms)
        while True:
            answer = await self.coordinator.call(request, _codes, deadline, pause=pause)
            refused = _refused(answer)
            if refused is None:
                return
            # A coordinator may learn of a new topic later than its leader.
            await self._cluster.wait_after(refused, pause, deadline)

    async def settle_adding(self) -> None:
        """Wait until no partition is being added to the transaction."""
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
        self._wanted.clear()

    async def close(self, late: KohortError | None) -> None:
        """Stop; remaining records fail."""
        await self.settle_adding()
        await super().close(late)


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[AddPartitionsToTxnTopic, ...]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple(
        AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers))
        for name, numbers in topics.items()
    )


def _codes(answer: AddPartitionsToTxnResponse) -> list[int]:
    return [
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def _refused(answer: AddPartitionsToTxnResponse) -> KafkaError | None:
    """Return why a partition was not added; errors caused by other partitions come last."""
    errors = [
        KafkaError(
            each.partition_error_code, shown(TopicPartition(topic.name, each.partition_index))
        )
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
        if each.partition_error_code
    ]
    own = [each for each in errors if each.code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(iter(own or errors), None)
