"""The broker's side: a coordinator and partitions, with their logs."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from kohort.broker.log.producer_state import ProducerStates
from kohort.errors import ErrorCode, KafkaError
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
from kohort.group.transactions.transaction import TransactionRecord, Transactions, fold
from kohort.simulation.seeded import RuleBrokenError
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.records import decode_records
from kohort.wire.records.header import parse_header, with_base_offset
from kohort.wire.records.marker import Marker, encode_marker

TOPIC = "orders"
_WALL_MS = 1_700_000_000_000


class Produce(Struct, frozen=True):
    """A batch of one record for one partition.

    Attributes:
        transactional_id: Name of the producer.
        producer: Its id and epoch, as it believes.
        partition: The partition.
        batch: The batch.
        implied: Whether writing alone adds the partition to the transaction (KIP-890).
    """

    transactional_id: str
    producer: Producer
    partition: TopicPartition
    batch: bytes
    implied: bool


class Answer(Struct, frozen=True):
    """An error code, and the producer's new id and epoch."""

    error: ErrorCode
    producer: Producer | None = None


class Partition:
    """A partition's log, and its state of producers.

    Attributes:
        stored: The batches.
        producers: The state of producers after them.
    """

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.producers = ProducerStates()
        self._snapshot: tuple[int, bytes] = (0, self.producers.to_json())

    @property
    def stable(self) -> int:
        """The last stable offset."""
        first_open = self.producers.first_open
        return len(self.stored) if first_open is None else first_open

    def append(self, batch: bytes) -> None:
        """Append a producer's batch, unless it is stored already.

        Raises:
            KafkaError: The producer may not write it.
        """
        if self.producers.check(parse_header(batch)) is None:
            self._store(batch)

    def mark(self, marker: Marker) -> None:
        """Append the end of a transaction.

        Raises:
            KafkaError: A later epoch has written.
        """
        self.producers.check_marker(marker.producer_id, marker.producer_epoch)
        self._store(encode_marker(marker, _WALL_MS))

    def _store(self, batch: bytes) -> None:
        stored = with_base_offset(batch, len(self.stored), 0)
        self.stored.append(stored)
        self.producers.apply(parse_header(stored), stored)

    def save(self) -> None:
        """Write a snapshot of the state of producers."""
        self._snapshot = (len(self.stored), self.producers.to_json())

    def restart(self) -> None:
        """Restart from the last snapshot, and replay the rest of the log."""
        offset, data = self._snapshot
        self.producers = ProducerStates.from_json(data)
        for stored in self.stored[offset:]:
            self.producers.apply(parse_header(stored), stored)

    def readable(self) -> Iterator[tuple[str, bool]]:
        """Yield the values up to the last stable offset, and whether each is committed (KIP-98).

        This is computed as in clients, from the list of aborted transactions.
        """
        aborted = self.producers.aborted_within(0, self.stable)
        for stored in self.stored[: self.stable]:
            header = parse_header(stored)
            counts = not any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset < each.last_offset
                for each in aborted
            )
            if not header.is_control:
                for record in decode_records(stored):
                    yield (record.value or b"").decode(), counts


class Cluster:
    """One coordinator and a few partitions; `now` is the clock.

    Args:
        partitions: How many.
        config: The coordinator's settings.

    Attributes:
        partitions: By their names.
        log: The coordinator's log.
        unwritten: Markers not yet written to their partitions.
        now: The time in milliseconds.
    """

    def __init__(self, partitions: int, config: TransactionConfig) -> None:
        names = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.partitions = {name: Partition() for name in names}
        self.log: list[TransactionRecord] = []
        self.unwritten: dict[str, Markers] = {}
        self.now = 0
        self._config = config
        self._coordinator = TransactionCoordinator(config)
        self._next_id = 0

    @property
    def known(self) -> Transactions:
        """The producers that the coordinator knows."""
        return self._coordinator.log

    # ------------------------------------------------------------------------------ requests

    def fresh_id(self, name: str) -> int:
        """Return an id for a producer that may need a new one, else -1."""
        if not self._coordinator.needs_id(name):
            return -1
        self._next_id += 1
        return self._next_id

    def handle(self, request: TransactionEvent | Produce) -> Answer:
        """Handle a request."""
        if isinstance(request, Produce):
            return Answer(self._produce(request))
        effects = self._decide(request)
        return Answer(effects.error, effects.producer)

    def _produce(self, request: Produce) -> ErrorCode:
        partition = self.partitions[request.partition]
        by = request.producer
        if not partition.producers.is_open(by.producer_id, by.epoch):
            error = self._decide(_joining(request)).error
            if error is not ErrorCode.NONE:
                return error
        try:
            partition.append(request.batch)
        except KafkaError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE

    def _decide(self, event: TransactionEvent) -> TransactionEffects:
        effects = self._coordinator.decide(event, self.now, _WALL_MS + self.now)
        self._carry_out(effects)
        return effects

    def _carry_out(self, effects: TransactionEffects) -> None:
        if effects.record is not None:
            self.log.append(effects.record)
        self._coordinator.install(effects)
        if effects.markers is not None:
            self.unwritten[effects.markers.transactional_id] = effects.markers
        self._check_log()

    # ---------------------------------------------------------------------- without a request

    def write_marker(self, name: str, partition: TopicPartition | None) -> None:
        """Write a transaction's marker to one partition, and report it to the coordinator."""
        markers = self.unwritten[name]
        if partition is not None:
            try:
                self.partitions[partition].mark(markers.marker)
            except KafkaError as error:
                raise RuleBrokenError("X5", f"{markers} refused by {partition}: {error}") from error
            left = markers.partitions - {partition}
            self.unwritten[name] = replace(markers, partitions=left)
        if not self.unwritten[name].partitions:
            del self.unwritten[name]
            self._decide(MarkersWritten(name))

    def pass_time(self, ms: int) -> None:
        """Advance the clock, and handle due deadlines."""
        self.now += ms
        wall_ms = _WALL_MS + self.now
        while (effects := self._coordinator.decide_due(self.now, wall_ms)) is not None:
            self._carry_out(effects)

    def crash(self) -> None:
        """Crash the coordinator; a new one reads its log and writes the markers again."""
        self._coordinator = TransactionCoordinator(self._config)
        for record in self.log:
            self._coordinator.apply(record)
        self._coordinator.load_finished(self.now)
        self.unwritten = {each.transactional_id: each for each in self._coordinator.unended()}

    def compact(self) -> None:
        """Keep the last record of each producer."""
        last = {record.key: record for record in self.log}
        self.log = [each for each in last.values() if each.value is not None]

    def _check_log(self) -> None:
        """X6: the log has all of the coordinator's logged state."""
        folded: Transactions = TransactionCoordinator(self._config).log
        for record in self.log:
            folded = fold(folded, record)
        known = {name: replace(each, last_epoch=-1) for name, each in self.known.items()}
        read = {name: replace(each, last_epoch=-1) for name, each in folded.items()}
        if known != read:
            raise RuleBrokenError("X6", f"the log says {read}, and the coordinator knows {known}")


def _joining(request: Produce) -> TransactionEvent:
    if not request.implied:
        return VerifyPartition(
            transactional_id=request.transactional_id,
            producer=request.producer,
            partition=request.partition,
        )
    return AddPartitions(
        transactional_id=request.transactional_id,
        producer=request.producer,
        partitions=frozenset({request.partition}),
        client_version=2,
    )
