"""The partitions of a consumer, each with its position and prefetched records."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct, field

from kohort.client.consumer.records import Chunk
from kohort.client.net.metadata import ClusterMetadata
from kohort.errors import KohortError, LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.fetch import FetchPartition

log = logging.getLogger("kohort.client")

EARLIEST = -2
LATEST = -1


class Trouble(Struct):
    """Why a partition cannot be read for now; it is fetched repeatedly until it can.

    Attributes:
        error: The error.
        is_reported: Whether the application was told.
        is_over: Whether it has passed; it is still reported if it was not before.
    """

    error: KohortError
    is_reported: bool = False
    is_over: bool = False

    def is_due(self, *, is_idle: bool) -> bool:
        """Whether a poll raises it: once, and again while it lasts and there are no records."""
        return not self.is_reported or (is_idle and not self.is_over)


class PartitionState(Struct):
    """One partition. Owned by the loop; `current` and `position` by the polling thread.

    Attributes:
        partition: The partition.
        position: Offset of the next record for the application; None until known.
        consumed: Offset up to which records are processed; auto-commit may commit it.
        stored: Offset that the application stored itself (`store_offsets`).
        reset_to: A timestamp, EARLIEST or LATEST to look up the position from; None to ask for the
            committed offset first.
        current: The chunk that records are being returned from.
        chunks: Chunks that were fetched after it.
        fetch_offset: Offset to fetch next.
        is_paused: Whether the application paused it.
        is_held: Whether it must not be read, because a callback about it is running.
        is_asked: Whether the application asks for its position while it is held.
        is_sought: Whether a seek to the beginning or end is being looked up.
        is_fetching: Whether it is part of a pending request.
        is_new: Whether it was not fetched since a seek or a pause.
        failure: Why it cannot be read further until the application seeks.
        is_reported: Whether `failure` was reported to the application.
        trouble: Why the last attempt to read it failed.
        is_spoiled: Whether fetched records cannot be decoded, and must be fetched again.
        not_before: Loop time before which it is not fetched again.
        incarnation: Changes with each seek, so that late answers are recognised.
        refusals: Number of consecutive refused fetches.
        asked: Its entry in the last fetch.
        leader_epoch: Leader epoch of the last records, -1 at first.
        high_watermark: End offset of the partition at its last fetch, None at first.
        end: The same, or the end of committed records if only those are read (KIP-98).
        out_of_range: Offset that is out of range, while another one is looked up.
        topic_id: Id of the topic that the position belongs to (KIP-516), None before the first
            read.
    """

    partition: TopicPartition
    position: int | None = None
    consumed: int | None = None
    stored: OffsetAndMetadata | None = None
    reset_to: int | None = None
    current: Chunk | None = None
    chunks: deque[Chunk] = field(default_factory=deque)
    fetch_offset: int = 0
    is_paused: bool = False
    is_held: bool = False
    is_asked: bool = False
    is_sought: bool = False
    is_fetching: bool = False
    is_new: bool = False
    failure: KohortError | None = None
    is_reported: bool = False
    trouble: Trouble | None = None
    is_spoiled: bool = False
    not_before: float = 0.0
    incarnation: int = 0
    refusals: int = 0
    asked: Asked | None = None
    leader_epoch: int = -1
    high_watermark: int | None = None
    end: int | None = None
    out_of_range: int | None = None
    topic_id: uuid.UUID | None = None

    @property
    def is_readable(self) -> bool:
        """Whether records may be returned."""
        is_wanted = not (self.is_paused or self.is_held)
        return is_wanted and self.failure is None and not self.is_spoiled

    @property
    def is_idle(self) -> bool:
        """Whether records may be returned, but none are requested or buffered."""
        return not self.is_fetching and self.is_readable

    @property
    def has_records(self) -> bool:
        """Whether there are fetched records that may be returned."""
        return (self.current is not None or bool(self.chunks)) and self.is_readable

    def seek(self, offset: int) -> None:
        """Continue from `offset`."""
        self.forget()
        self.is_asked = self.is_sought = False
        self.position = self.consumed = self.fetch_offset = offset
        self.is_new = True
        self.reset_to = None

    def found(self, offset: int) -> None:
        """Continue from `offset`, which was looked up; earlier errors of the lookup are over."""
        trouble = self.trouble
        self.seek(offset)
        self.trouble = trouble
        self.heal()

    def resume(self) -> None:
        """Continue where it was paused."""
        self.is_new = self.is_new or self.is_paused
        self.is_paused = False

    def look_up(self, target: int | None) -> None:
        """Find the position again: from a timestamp, either end, or (None) the committed offset."""
        self.forget()
        self.position = None
        self.is_sought = False
        self.reset_to = target

    def is_remade(self, metadata: ClusterMetadata) -> bool:
        """Whether its topic was deleted and recreated, which makes its position meaningless."""
        present = metadata.topic_id(self.partition.topic)
        return None not in (self.topic_id, present) and self.topic_id != present

    def begin_anew(self, target: int) -> None:
        """Move to the beginning or end of the recreated topic."""
        self.look_up(target)
        self.consumed = self.stored = None
        self.leader_epoch = -1

    def forget(self) -> None:
        """Drop fetched records and errors."""
        self.current = None
        self.chunks.clear()
        self.failure = self.trouble = None
        self.is_reported = self.is_spoiled = False
        self.is_fetching = False
        self.not_before = 0.0
        self.topic_id = self.out_of_range = None
        self.incarnation += 1

    def note_trouble(self, error: KohortError) -> None:
        """Note why it cannot be read for now; repeated errors count as one problem."""
        trouble = self.trouble
        if trouble is None or trouble.is_over:
            self.trouble = Trouble(error)
        else:
            trouble.error = error

    def heal(self) -> None:
        """Note that it can be read again."""
        if self.trouble is not None:
            self.trouble.is_over = True

    def spoil(self, error: KohortError) -> None:
        """Note that fetched records cannot be decoded."""
        self.note_trouble(error)
        self.is_spoiled = True

    def drop_spoiled(self) -> None:
        """Drop fetched records to fetch them again; not while the application takes records."""
        assert self.position is not None
        self.current = None
        self.chunks.clear()
        self.is_spoiled = self.is_fetching = False
        self.is_new = True
        self.fetch_offset = self.position
        self.incarnation += 1

    @property
    def has_trouble_news(self) -> bool:
        """Whether a problem must be reported to the application."""
        is_read = not (self.is_paused or self.is_held)
        return is_read and self.trouble is not None and not self.trouble.is_reported

    @property
    def is_taken(self) -> bool:
        """Whether records are set aside that may be returned."""
        return self.current is not None and self.is_readable

    def take_chunk(self) -> None:
        """Set aside the next chunk; on the loop, which fetches more once all are taken."""
        if self.current is None and self.chunks and self.is_readable:
            self.current = self.chunks.popleft()

    def put_back(self, chunk: Chunk) -> None:
        """Put a chunk back, before those that were set aside since."""
        if self.current is not None and self.current is not chunk:
            self.chunks.appendleft(self.current)
        self.current = chunk

    def settle(self) -> None:
        """Adopt the position of the current chunk; drop the chunk when it is empty."""
        assert self.current is not None
        if self.position != self.current.position:
            self.heal()
        self.position = self.current.position
        if self.current.is_empty:
            self.current = None


class Asked(Struct, frozen=True):
    """A partition in a fetch.

    Attributes:
        state: The partition.
        incarnation: Incarnation of the state when it was requested.
        metadata: The metadata of the cluster at that time.
        leader: The broker that is asked.
        topic_id: Id of its topic, zero when there is none.
        entry: Its entry in the request.
    """

    state: PartitionState
    incarnation: int
    metadata: ClusterMetadata
    leader: int
    topic_id: uuid.UUID
    entry: FetchPartition

    @property
    def is_current(self) -> bool:
        """Whether an answer is still wanted, which it is not after a seek."""
        return self.incarnation == self.state.incarnation

    @property
    def is_wanted(self) -> bool:
        """Whether its records are still missing: another answer may have brought them."""
        return self.is_current and self.entry.fetch_offset == self.state.fetch_offset


class Partitions:
    """All partitions of one consumer.

    Args:
        stores_offsets: Whether asking for more records marks the earlier ones as processed;
            otherwise only `store` does (`enable_auto_offset_store`).

    Attributes:
        given_out: Number of records returned to the application.
    """

    def __init__(self, *, stores_offsets: bool = True) -> None:
        self.stores_offsets = stores_offsets
        self.given_out = 0
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._states.values()))

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise LocalProtocolError(
                f"{partition.topic}-{partition.partition} is not assigned to this consumer"
            )
        return state

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, None if it is not assigned."""
        return self._states.get(partition)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """All partitions."""
        return frozenset(self._states)

    def add(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """Add partitions that are not assigned yet."""
        for partition in sorted(partitions):
            if partition not in self._states:
                self._states[partition] = PartitionState(partition, is_held=held)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions."""
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.forget()
                state.asked = None  # it refers to the state, which would keep fetched records alive

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the id of the topic that a position belongs to, None when not known."""
        state = self._states.get(partition)
        return state.topic_id if state is not None else None

    def hold(self, partitions: Iterable[TopicPartition], held: bool) -> None:
        """Stop partitions from being read, or release them."""
        for partition in partitions:
            if partition in self._states:
                self._states[partition].is_held = held

    def put_last(self, state: PartitionState) -> None:
        """Move a partition to the end, so that others come first next time."""
        if self._states.get(state.partition) is state:  # it may have been reassigned
            del self._states[state.partition]
            self._states[state.partition] = state

    def positions(self) -> list[tuple[PartitionState, int | None]]:
        """Return the current positions."""
        return [(state, state.position) for state in self]

    def mark_consumed(
        self, positions: Iterable[tuple[PartitionState, int | None]] | None = None
    ) -> None:
        """Note that all returned records, or those up to given positions, are processed."""
        if self.stores_offsets:
            for state, position in self.positions() if positions is None else positions:
                state.consumed = position

    def handed_out(self) -> dict[TopicPartition, int]:
        """Return the offsets from which on the application may still be processing."""
        return {
            state.partition: state.consumed
            for state in self
            if state.consumed is not None
            and state.position not in (None, state.consumed)
            and self.stores_offsets
        }

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store the offsets up to which the application has processed records.

        Raises:
            LocalProtocolError: A partition is not assigned; then nothing is stored.
        """
        states = [(self[partition], position) for partition, position in offsets.items()]
        for state, position in states:
            state.stored = position

    @contextmanager
    def committing(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Iterator[None]:
        """Forget stored offsets: an explicit commit replaces them, unless it fails.

        The offsets of the commit itself are forgotten only after it has succeeded: until then,
        another commit must store them as well.

        Args:
            offsets: Offsets of the commit, which runs inside the block.
        """
        states = {each: self._states[each] for each in offsets if each in self._states}
        before = {each: state.stored for each, state in states.items()}
        for each, state in states.items():
            if state.stored != offsets[each]:
                state.stored = None
        try:
            yield
        except BaseException:  # a cancelled commit is as uncertain as a failed one
            for each, state in states.items():
                state.stored = state.stored or before[each]
            raise
        for each, state in states.items():
            if state.stored == offsets[each]:  # nothing newer was stored
                state.stored = None

    def consumed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the processed offsets, ready to be committed."""
        chosen = self._states if partitions is None else partitions
        states = [self._states[each] for each in chosen if each in self._states]
        done = ((state.partition, self._done(state)) for state in states)
        return {partition: position for partition, position in done if position is not None}

    def sought(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> tuple[TopicPartition, ...]:
        """Return partitions that a commit of positions leaves out because of an unfinished seek."""
        if not self.stores_offsets:
            return ()
        chosen = self._states if partitions is None else partitions
        return tuple(p for p in chosen if (state := self._states.get(p)) and state.is_sought)

    def tell_sought(
        self, group: str | None, what: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Log partitions that a commit leaves out because it cannot wait.

        Args:
            group: Its group.
            what: Name of the commit, for messages.
            partitions: Partitions of the commit; all by default.
        """
        if left := self.sought(partitions):
            log.warning(
                "group %s: %s leaves out %s: a seek to the start or end is unfinished, so the"
                " group's offset is unchanged. Call commit(), or position() first, to wait for it",
                *(group, what, ", ".join(f"{each.topic}-{each.partition}" for each in left)),
            )

    def _done(self, state: PartitionState) -> OffsetAndMetadata | None:
        if not self.stores_offsets:
            return state.stored
        if state.consumed is None:
            return None
        return OffsetAndMetadata(state.consumed, leader_epoch=state.leader_epoch)
