"""The calls of a transactional producer: their requests to brokers, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from kohort.client.config.definitions import ProducerConfig
from kohort.client.consumer.commits.offsets import shown
from kohort.client.consumer.commits.requests import in_parts
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.versions import END_IN_V1, OFFSETS_IN_V1
from kohort.client.producer.batch import Identity
from kohort.client.producer.callback_records import CallbackRecords
from kohort.client.producer.transactions.errors import (
    abortable,
    again,
    dropped,
    fenced,
    final,
    forgotten,
    interrupted,
    not_allowed,
    not_identified,
    offsets_refused,
)
from kohort.client.producer.transactions.machine import (
    OUTDATED,
    Abort,
    Begin,
    Commit,
    Doomed,
    Ended,
    Failed,
    Identified,
    Initialize,
    Interrupted,
    Outdated,
    Refused,
    Settled,
    Step,
    Touched,
    TransactionSession,
    TransactionState,
)
from kohort.client.producer.transactions.sender import FIRST_PAUSE_MS, TransactionalSender
from kohort.errors import ErrorCode, KafkaError, KohortError, LocalProtocolError
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.txn_requests import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

log = logging.getLogger("kohort.client")

S = TransactionState
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FEATURE = "transaction.version"
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Transactions:
    """Runs the calls of one producer, one at a time, on its loop.

    Args:
        config: Settings.
        cluster: The brokers.
        sender: Sends the records.
        records: Records that delivery callbacks have sent.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        sender: TransactionalSender,
        records: CallbackRecords,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._sender = sender
        self._callback_records = records
        self._groups: dict[str, Coordinator] = {}
        self._one_by_one = asyncio.Lock()
        self._id = sender.transactional_id

    @property
    def state(self) -> TransactionState:
        """The current state of the producer."""
        return self._sender.machine.session.state

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self.state in (S.IN_TRANSACTION, S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR)

    # ------------------------------------------------------------------------------- the calls

    async def initialize(self, deadline: Deadline) -> None:
        """Get a producer id; this fences other producers with this transactional id.

        Raises:
            KohortError: See `AsyncProducer.init_transactions`.
        """
        async with self._call("init_transactions", deadline):
            await self._drive(Initialize(), deadline)

    async def begin(self, deadline: Deadline) -> None:
        """Begin a transaction; get a producer id first if there is none.

        Raises:
            KohortError: See `AsyncProducer.begin_transaction`.
        """
        async with self._call("begin_transaction", deadline):
            if self.state is S.UNINITIALIZED:
                await self._drive(Initialize(), deadline)
            await self._drive(Begin(), deadline)

    async def add_offsets(
        self, offsets: Offsets, group: ConsumerGroupMetadata, deadline: Deadline
    ) -> None:
        """Store offsets with a group once the transaction commits (KIP-447).

        Raises:
            KohortError: See `AsyncProducer.send_offsets_to_transaction`.
        """
        call = "send_offsets_to_transaction"
        async with self._call(call, deadline):
            self._refuse_failed()
            if self.state is not S.IN_TRANSACTION:
                raise not_allowed(self._id, self._sender.machine.session, call)
            if not offsets:
                return
            self._sender.run(Touched())
            try:
                await self._store(offsets, group, deadline)
            except KohortError as error:
                self._sender.run(Failed(error))
            except BaseException:
                self._sender.run(Failed(interrupted(self._id, call)))
                raise
            self._refuse_failed()

    async def commit(self, deadline: Deadline) -> None:
        """Commit, or resume a commit that was interrupted.

        Raises:
            KohortError: See `AsyncProducer.commit_transaction`.
        """
        async with self._call("commit_transaction", deadline):
            await self._pass_on(deadline)
            await self._drive(Commit(), deadline)
            self._refuse_failed()

    async def abort(self, deadline: Deadline) -> None:
        """Abort, or resume an abort.

        Raises:
            KohortError: See `AsyncProducer.abort_transaction`.
        """
        async with self._call("abort_transaction", deadline):
            await self._drive(Abort(), deadline)

    async def _pass_on(self, deadline: Deadline) -> None:
        """Wait for records that delivery callbacks have sent: they belong to it, too."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self._callback_records.passed_on()
        except TimeoutError:
            raise deadline.expired("records of callbacks wait for metadata or memory") from None

    async def wind_up(self, deadline: Deadline) -> None:
        """End an open transaction before the producer is closed; errors are logged."""
        deadline.what = f"closing the producer with transactional id {self._id}"
        try:
            async with self._turn(deadline):  # a call that still runs may end it
                pass
            await self._end_what_is_open(deadline)
        except KohortError as error:
            log.warning(
                "transactional id %s: the transaction could not be ended: %s; if it is still open,"
                " the broker aborts it after transaction.timeout.ms",
                self._id,
                error,
            )

    async def _end_what_is_open(self, deadline: Deadline) -> None:
        if self.state is S.COMMITTING:
            what, end = "committed, as requested", self.commit
        elif self.is_open:
            what, end = "aborted", self.abort
        else:
            return
        log.warning(
            "transactional id %s: the producer is closed during a transaction, which is %s",
            self._id,
            what,
        )
        await end(deadline)

    # ------------------------------------------------------------------------------ the driver

    @asynccontextmanager
    async def _call(self, call: str, deadline: Deadline) -> AsyncIterator[None]:
        """Run one call at a time, and add advice to the error if it times out."""
        deadline.what = f"{call} of transactional id {self._id}"
        async with self._turn(deadline):
            if self.state is S.FATAL_ERROR:
                raise _cause(self._sender.machine.session.cause)
            try:
                yield
            except BaseException as error:
                self._sender.run(Interrupted())
                if isinstance(error, KafkaError) and error.retriable:
                    raise again(error, self._sender.machine.session) from error
                raise

    @asynccontextmanager
    async def _turn(self, deadline: Deadline) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self._one_by_one.acquire()
        except TimeoutError:
            raise deadline.expired("another call has not ended yet") from None
        try:
            yield
        finally:
            self._one_by_one.release()

    async def _drive(self, event: object, deadline: Deadline) -> None:
        """Run the machine's steps until there are no more."""
        session = self._sender.machine.session
        try:
            step = self._sender.run(event)
        except LocalProtocolError:
            raise not_allowed(self._id, session, _CALLS[type(event)]) from None
        while step is not Step.NONE:
            step = self._sender.run(await self._do(step, deadline))
        if self.state is S.FATAL_ERROR:
            raise _cause(self._sender.machine.session.cause)

    def _refuse_failed(self) -> None:
        session = self._sender.machine.session
        if session.state is S.ABORTABLE_ERROR:
            raise abortable(self._id, session)

    async def _do(self, step: Step, deadline: Deadline) -> object:
        if step is Step.FLUSH:
            await self._flush(deadline)
            return Settled()
        if step is Step.DROP:
            await self._callback_records.close(dropped(self._id))
            await self._sender.settle_adding()
            self._sender.drop()
            await self._flush(deadline)
            return Settled()
        if step in (Step.IDENTIFY, Step.RENEW):
            return await self._identify(step is Step.RENEW, deadline)
        return await self._end(step is Step.COMMIT, deadline)

    async def _flush(self, deadline: Deadline) -> None:
        await self._sender.flush(deadline, deadline.timeout_s)

    # ---------------------------------------------------------------------------- the requests

    async def _identify(self, renews: bool, deadline: Deadline) -> object:
        present = self._sender.machine.session.identity if renews else None
        timeout_ms = self._config.transaction_timeout_ms
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=timeout_ms,
            producer_id=present.producer_id if present else -1,
            producer_epoch=present.epoch if present else -1,
        )
        coordinator = self._sender.coordinator
        answer = await coordinator.call(
            request, lambda each: [each.error_code], deadline, pause=self._pause()
        )
        if answer.error_code in FENCED:
            session = self._sender.machine.session
            return Doomed(fenced(self._id, session, KafkaError(answer.error_code)))
        if answer.error_code:
            raise not_identified(self._id, timeout_ms, answer.error_code)
        has_v2 = await coordinator.level(_FEATURE) >= 2
        return Identified(Identity(answer.producer_id, answer.producer_epoch), has_v2)

    async def _end(self, commits: bool, deadline: Deadline) -> object:
        session = self._sender.machine.session
        assert session.identity is not None
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=session.identity.producer_id,
            producer_epoch=session.identity.epoch,
            committed=commits,
        )
        answer = await self._sender.coordinator.call(
            request,
            lambda each: [each.error_code],
            deadline,
            at_most=None if session.has_v2 else END_IN_V1,
            pause=self._pause(),
        )
        if answer.error_code and deadline.lost is not None:
            self._sender.run(Interrupted())
        session = self._sender.machine.session
        return ended(self._id, session, answer, is_unsure=deadline.lost is not None)

    async def _store(
        self, offsets: Offsets, group: ConsumerGroupMetadata, deadline: Deadline
    ) -> None:
        if not self._sender.machine.session.has_v2:
            await self._add_group(group, deadline)
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = self._groups[group.group_id] = Coordinator(self._cluster, group.group_id)
        for part in in_parts(group.group_id, offsets):
            await self._store_part(coordinator, part, group, deadline)

    async def _add_group(self, group: ConsumerGroupMetadata, deadline: Deadline) -> None:
        identity = self._identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group.group_id,
        )
        answer = await self._sender.coordinator.call(
            request, lambda each: [each.error_code], deadline, pause=self._pause()
        )
        if answer.error_code:
            raise KafkaError(answer.error_code, f"offsets of group {group.group_id}")

    async def _store_part(
        self,
        coordinator: Coordinator,
        offsets: Offsets,
        group: ConsumerGroupMetadata,
        deadline: Deadline,
    ) -> None:
        identity = self._identity
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=_topics(offsets),
        )
        at_most = None if self._sender.machine.session.has_v2 else OFFSETS_IN_V1
        pause = self._pause()
        while True:
            answer = await coordinator.call(
                request, lambda each: list(_codes(each).values()), deadline, at_most=at_most
            )
            refused = [(code, where) for where, code in _codes(answer).items() if code]
            if not refused:
                return
            error = offsets_refused(group, refused[0][0], shown(refused[0][1]))
            # A coordinator may learn of a new topic later than its leader.
            await self._cluster.wait_after(error, pause, deadline)

    @property
    def _identity(self) -> Identity:
        identity = self._sender.machine.session.identity
        assert identity is not None
        return identity

    def _pause(self) -> Backoff:
        first_ms = min(FIRST_PAUSE_MS, self._config.retry_backoff_ms)
        return Backoff(first_ms, self._config.retry_backoff_max_ms)


def ended(
    transactional_id: str, session: TransactionSession, answer: EndTxnResponse, *, is_unsure: bool
) -> Ended | Outdated | Refused | Doomed:
    """Return the event for an answer to EndTxn.

    Args:
        transactional_id: Transactional id of the producer.
        session: The machine's session.
        answer: The answer.
        is_unsure: Whether an earlier EndTxn got no answer.
    """
    commits = session.state is S.COMMITTING
    if not answer.error_code:
        known = answer.producer_id >= 0 and answer.producer_epoch >= 0
        new = Identity(answer.producer_id, answer.producer_epoch) if known else None
        return Ended(new, is_unsure=is_unsure)
    error = KafkaError(answer.error_code, f"EndTxn of transactional id {transactional_id}")
    if error.code == ErrorCode.PRODUCER_FENCED:
        return Doomed(fenced(transactional_id, session, error))
    if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and commits and session.is_unsure:
        return Doomed(forgotten(transactional_id, error))
    if error.code in OUTDATED:
        return Outdated(error)
    if error.code == ErrorCode.TRANSACTION_ABORTABLE and commits:
        return Refused(error)
    return Doomed(final(transactional_id, error))


_CALLS: Mapping[type[object], str] = {
    Initialize: "init_transactions",
    Begin: "begin_transaction",
    Commit: "commit_transaction",
    Abort: "abort_transaction",
}


def _cause(error: KohortError | None) -> KohortError:
    assert error is not None
    return error


def _topics(offsets: Offsets) -> tuple[TxnOffsetCommitRequestTopic, ...]:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for partition, position in sorted(offsets.items()):
        entry = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=position.offset,
            committed_leader_epoch=position.leader_epoch,
            committed_metadata=position.metadata,
        )
        topics.setdefault(partition.topic, []).append(entry)
    return tuple(
        TxnOffsetCommitRequestTopic(name=name, partitions=tuple(entries))
        for name, entries in topics.items()
    )


def _codes(answer: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
