"""The transaction coordinator's shell: a log, a clock, and markers in the partitions.

The rules are in `kohort.group.transactions`. The only broker coordinates all producers; the records
of each are in the partition of `__transaction_state` that Kafka would choose.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kohort.broker.coordination.coordinator import OFFSETS_TOPIC, GroupCoordinator, partition_of
from kohort.broker.log.directory import DataDirectory
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.transactions.coordinator import TransactionCoordinator
from kohort.group.transactions.events import (
    AddPartitions,
    Markers,
    MarkersWritten,
    Producer,
    TransactionConfig,
    TransactionEffects,
    TransactionEvent,
    VerifyPartition,
)
from kohort.group.transactions.transaction import Transaction, TransactionRecord
from kohort.types import TopicPartition
from kohort.wire.records import Record, decode_records, encode_batch
from kohort.wire.records.marker import Marker
from kohort.wire.transaction_log import decode_transaction, encode_transaction

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics of the coordinators, which clients may read but not write."""

_MARKERS_AGAIN_MS = 1_000
_NEVER = 1 << 63


class Transactions:
    """All transactional producers of this broker."""

    def __init__(
        self,
        data: DataDirectory,
        config: TransactionConfig,
        groups: GroupCoordinator,
        appended: Callable[[TopicPartition], None],
    ) -> None:
        """Create a coordinator without producers; `start` loads its log.

        Args:
            data: Directory with the logs.
            config: Limits and timeouts.
            groups: The group coordinator, which stores offsets of transactions.
            appended: Called after a marker is appended, to wake waiting fetches.
        """
        self._data = data
        self._groups = groups
        self._appended = appended
        self._machine = TransactionCoordinator(config)
        self._unwritten: dict[str, Markers] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._damage: str | None = None

    @property
    def known(self) -> dict[str, Transaction]:
        """All producers, by transactional id."""
        return dict(self._machine.log)

    # --------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Load the log, and complete the transactions whose end was decided before the restart."""
        topic = self._data.topics[TRANSACTIONS_TOPIC]
        try:
            for number in range(topic.partitions):
                self._load(TopicPartition(TRANSACTIONS_TOPIC, number))
        except KohortError as error:
            self._damage = str(error)
            logger.error(
                "%s cannot be loaded until this broker restarts; it refuses transactions: %s",
                TRANSACTIONS_TOPIC,
                error,
            )
            return
        self._machine.load_finished(_now())
        for markers in self._machine.unended():
            self._write(markers)
        self._rearm()

    def _load(self, partition: TopicPartition) -> None:
        if not self._data.has_log(partition):
            return
        for header, batch in self._data.log(partition).batches():
            if header.is_control:
                continue
            for record in decode_records(batch):
                known = None if record.key is None else decode_transaction(record.key, record.value)
                if known is not None:
                    self._machine.apply(TransactionRecord(*known))

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # ----------------------------------------------------------------------------- requests

    def fresh_id(self, transactional_id: str) -> int:
        """Return an unused producer id if the producer may need one, else -1.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        needs = self._machine.needs_id(transactional_id)
        return self._data.next_producer_id() if needs else -1

    def request(self, event: TransactionEvent) -> TransactionEffects:
        """Pass a request to the state machine, and carry out its effects.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE: the log was not writable, and nothing has
                changed.
        """
        if self._damage is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._damage)
        effects = self._machine.decide(event, _now(), _wall_ms())
        self._carry_out(effects)
        return effects

    def join(
        self, name: str | None, producer: Producer, partition: TopicPartition, *, implied: bool
    ) -> None:
        """Ensure that a partition belongs to the transaction of a producer that writes to it.

        Args:
            name: Transactional id of the producer.
            producer: Producer id and epoch of the batch.
            partition: The partition that it writes to.
            implied: Whether a write adds the partition (KIP-890), or a request must have added it
                before.

        Raises:
            KafkaError: The producer may not write, with the reason.
        """
        if not name:
            text = "a transactional batch in a request without a transactional id"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        event: TransactionEvent = VerifyPartition(
            transactional_id=name, producer=producer, partition=partition
        )
        if implied:
            partitions = frozenset({partition})
            event = AddPartitions(
                transactional_id=name, producer=producer, partitions=partitions, client_version=2
            )
        error = self.request(event).error
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"{name!r} cannot write to {partition}: {error.name}")

    # ---------------------------------------------------------------------------- the machine

    def _carry_out(self, effects: TransactionEffects) -> None:
        if effects.record is not None:
            self._append(effects.record)
        self._machine.install(effects)
        if effects.markers is not None:
            self._write(effects.markers)
        self._rearm()

    def _append(self, record: TransactionRecord) -> None:
        name = record.key.transactional_id
        partitions = self._data.topics[TRANSACTIONS_TOPIC].partitions
        log = self._data.log(TopicPartition(TRANSACTIONS_TOPIC, partition_of(name, partitions)))
        now = _wall_ms()
        try:
            pair = encode_transaction(record.key, record.value)
            log.append(encode_batch([Record(0, now, *pair)]), now)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error

    def _write(self, markers: Markers) -> None:
        """Write the end of a transaction to each partition; partitions that failed are retried."""
        left = {each for each in markers.partitions if not self._marked(each, markers)}
        if left:
            self._unwritten[markers.transactional_id] = Markers(
                markers.transactional_id, markers.marker, frozenset(left)
            )
            self._rearm()
            return
        self._unwritten.pop(markers.transactional_id, None)
        written = MarkersWritten(markers.transactional_id)
        try:
            self._carry_out(self._machine.decide(written, _now(), _wall_ms()))
        except KafkaError:  # the storage has logged it; the markers are in the partitions
            nothing = Markers(markers.transactional_id, markers.marker, frozenset())
            self._unwritten[markers.transactional_id] = nothing

    def _marked(self, partition: TopicPartition, markers: Markers) -> bool:
        topic = self._data.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partitions:
            return True  # the topic was deleted with its records
        try:
            self.mark(partition, markers.marker)
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_PRODUCER_EPOCH:
                return False
            logger.error("%s: the marker %r is outdated and dropped: %s", partition, markers, error)
        return True

    def mark(self, partition: TopicPartition, marker: Marker) -> None:
        """Write a transaction marker to a partition.

        Raises:
            KafkaError: The marker could not be written, or the producer has written with a later
                epoch.
        """
        if partition.topic == OFFSETS_TOPIC:
            self._groups.end_transaction(partition.partition, marker)
        else:
            self._data.log(partition).append_marker(marker, _wall_ms())
        self._appended(partition)

    # ---------------------------------------------------------------------------------- time

    def _rearm(self) -> None:
        due = self._machine.deadlines.earliest
        at = _NEVER if due is None else due
        if self._unwritten:
            at = min(at, _now() + _MARKERS_AGAIN_MS)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at != _NEVER:
            delay = max(at - _now(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for markers in tuple(self._unwritten.values()):
            self._write(markers)
        try:
            while (effects := self._machine.decide_due(_now(), _wall_ms())) is not None:
                self._carry_out(effects)
        except KafkaError:  # the storage has logged it
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_MARKERS_AGAIN_MS / 1000, self._on_timer)
            return
        self._rearm()


def _now() -> int:
    return int(time.monotonic() * 1000)


def _wall_ms() -> int:
    return int(time.time() * 1000)
