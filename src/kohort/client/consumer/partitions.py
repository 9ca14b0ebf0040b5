"""The partitions a consumer reads, each with its position and what was fetched in advance."""

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
    """Why a partition cannot be read for now; it is fetched again and again until it can.

    Attributes:
        error: What is wrong.
        is_reported: Whether the application was told.
        is_over: Whether it is past; an application that was not told hears of it even so.
    """

    error: KohortError
    is_reported: bool = False
    is_over: bool = False

    def is_due(self, *, is_idle: bool) -> bool:
        """Whether a poll raises it: once, and again while it lasts and there is nothing else."""
        return not self.is_reported or (is_idle and not self.is_over)


class PartitionState(Struct):
    """One partition. Owned by the loop; `current` and `position` by the polling thread.

    Attributes:
        partition: Which.
        position: Offset of the next record for the application; None until it is known.
        consumed: Offset up to which the application is done: what auto-commit may commit.
        stored: What the application stored by itself instead (`store_offsets`).
        reset_to: A timestamp, EARLIEST or LATEST that the position is to be looked up from; None
            when the committed offset is asked first.
        current: What records are being handed out of.
        chunks: What was fetched after it.
        fetch_offset: Offset to fetch next.
        is_paused: Whether the application paused it.
        is_held: Whether it must not be read: a callback about it is not finished.
        is_asked: Whether the application wants to know its position even so.
        is_sought: Whether the application has sought an end, and that is being looked up.
        is_fetching: Whether it is in a request.
        is_new: Whether nothing was asked for since a seek or a pause.
        failure: Why it cannot be read further until the application seeks.
        is_reported: Whether the application was told of that.
        trouble: Why it could not be read when it was last tried.
        is_spoiled: Whether what was fetched cannot be decoded, and is to be fetched again.
        not_before: Time of the loop before which it is not fetched again.
        incarnation: Changes with each seek, so that late answers are recognised.
        refusals: How often in a row a fetch was refused.
        asked: How it was asked for last.
        leader_epoch: Epoch of the leader the last records came from, -1 at first.
        high_watermark: End of the partition when it was last fetched, None at first.
        end: The same, or the end of the committed records if only they are read (KIP-98).
        out_of_range: Offset that the partition does not have, while another one is looked up.
        topic_id: The topic that the position belongs to (KIP-516), None until it is read there.
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
        """Whether records may be handed out."""
        is_wanted = not (self.is_paused or self.is_held)
        return is_wanted and self.failure is None and not self.is_spoiled

    @property
    def is_idle(self) -> bool:
        """Whether records may be handed out, but are not on their way."""
        return not self.is_fetching and self.is_readable

    @property
    def has_records(self) -> bool:
        """Whether something was fetched that may be handed out."""
        return (self.current is not None or bool(self.chunks)) and self.is_readable

    def seek(self, offset: int) -> None:
        """Go on from `offset`."""
        self.forget()
        self.is_asked = self.is_sought = False
        self.position = self.consumed = self.fetch_offset = offset
        self.is_new = True
        self.reset_to = None

    def found(self, offset: int) -> None:
        """Go on from `offset`, which was looked up; what kept it from being found is over."""
        trouble = self.trouble
        self.seek(offset)
        self.trouble = trouble
        self.heal()

    def resume(self) -> None:
        """Go on where it was paused."""
        self.is_new = self.is_new or self.is_paused
        self.is_paused = False

    def look_up(self, target: int | None) -> None:
        """Find the position again: from a timestamp, an end, or (None) the committed offset."""
        self.forget()
        self.position = None
        self.is_sought = False
        self.reset_to = target

    def is_remade(self, metadata: ClusterMetadata) -> bool:
        """Whether its topic was deleted and recreated: its position means nothing any more."""
        present = metadata.topic_id(self.partition.topic)
        return None not in (self.topic_id, present) and self.topic_id != present

    def begin_anew(self, target: int) -> None:
        """Go to one end of the topic that has the name now."""
        self.look_up(target)
        self.consumed = self.stored = None
        self.leader_epoch = -1

    def forget(self) -> None:
        """Drop what was fetched, and what went wrong."""
        self.current = None
        self.chunks.clear()
        self.failure = self.trouble = None
        self.is_reported = self.is_spoiled = False
        self.is_fetching = False
        self.not_before = 0.0
        self.topic_id = self.out_of_range = None
        self.incarnation += 1

    def note_trouble(self, error: KohortError) -> None:
        """Note why it cannot be read for now; what lasts is the same trouble all the time."""
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
        """Note that what was fetched cannot be decoded."""
        self.note_trouble(error)
        self.is_spoiled = True

    def drop_spoiled(self) -> None:
        """Drop what was fetched, to fetch it again; not while the application takes records."""
        assert self.position is not None
        self.current = None
        self.chunks.clear()
        self.is_spoiled = self.is_fetching = False
        self.is_new = True
        self.fetch_offset = self.position
        self.incarnation += 1

    @property
    def has_trouble_news(self) -> bool:
        """Whether the application has to hear of a trouble."""
        is_read = not (self.is_paused or self.is_held)
        return is_read and self.trouble is not None and not self.trouble.is_reported

    @property
    def is_taken(self) -> bool:
        """Whether something was set aside that may be handed out."""
        return self.current is not None and self.is_readable

    def take_chunk(self) -> None:
        """Set aside what to hand out next; on the loop, which fetches more once all are taken."""
        if self.current is None and self.chunks and self.is_readable:
            self.current = self.chunks.popleft()

    def put_back(self, chunk: Chunk) -> None:
        """Hand out of a chunk again, before what has been set aside since."""
        if self.current is not None and self.current is not chunk:
            self.chunks.appendleft(self.current)
        self.current = chunk

    def settle(self) -> None:
        """Take over the position of the chunk at hand; drop it when it is empty."""
        assert self.current is not None
        if self.position != self.current.position:
            self.heal()
        self.position = self.current.position
        if self.current.is_empty:
            self.current = None


class Asked(Struct, frozen=True):
    """A partition as a fetch asks for it.

    Attributes:
        state: The partition.
        incarnation: That of the state when it was asked for.
        metadata: What was known of the cluster.
        leader: The broker that is asked.
        topic_id: Id of its topic, zero when that has none.
        entry: What the request says of it.
    """

    state: PartitionState
    incarnation: int
    metadata: ClusterMetadata
    leader: int
    topic_id: uuid.UUID
    entry: FetchPartition

    @property
    def is_current(self) -> bool:
        """Whether an answer is still wanted: not after a seek."""
        return self.incarnation == self.state.incarnation

    @property
    def is_wanted(self) -> bool:
        """Whether that is what is wanted next: not after another answer brought it, either."""
        return self.is_current and self.entry.fetch_offset == self.state.fetch_offset


class Partitions:
    """All partitions of one consumer.

    Args:
        stores_offsets: Whether asking for more says that the application is done with what it had;
            else only `store` says so (`enable_auto_offset_store`).

    Attributes:
        given_out: How many records the application was given.
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
        """Return the state of a partition if it is there."""
        return self._states.get(partition)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """All partitions."""
        return frozenset(self._states)

    def add(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """Add partitions that are not there yet."""
        for partition in sorted(partitions):
            if partition not in self._states:
                self._states[partition] = PartitionState(partition, is_held=held)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions."""
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.forget()
                state.asked = None  # which has the state: what was fetched would outlive it

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic that a position belongs to, None when that is not known."""
        state = self._states.get(partition)
        return state.topic_id if state is not None else None

    def hold(self, partitions: Iterable[TopicPartition], held: bool) -> None:
        """Hold partitions back from being read, or release them."""
        for partition in partitions:
            if partition in self._states:
                self._states[partition].is_held = held

    def put_last(self, state: PartitionState) -> None:
        """Let other partitions come first next time."""
        if self._states.get(state.partition) is state:  # it may have been revoked and come back
            del self._states[state.partition]
            self._states[state.partition] = state

    def positions(self) -> list[tuple[PartitionState, int | None]]:
        """Return the positions as they are now."""
        return [(state, state.position) for state in self]

    def mark_consumed(
        self, positions: Iterable[tuple[PartitionState, int | None]] | None = None
    ) -> None:
        """Note that the application is done with everything it was given, or up to positions."""
        if self.stores_offsets:
            for state, position in self.positions() if positions is None else positions:
                state.consumed = position

    def handed_out(self) -> dict[TopicPartition, int]:
        """Return from which offset on the application may still be at work."""
        return {
            state.partition: state.consumed
            for state in self
            if state.consumed is not None
            and state.position not in (None, state.consumed)
            and self.stores_offsets
        }

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note up to where the application is done, in its own words.

        Raises:
            LocalProtocolError: A partition is not assigned; then nothing is stored.
        """
        states = [(self[partition], position) for partition, position in offsets.items()]
        for state, position in states:
            state.stored = position

    @contextmanager
    def committing(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Iterator[None]:
        """Forget what was stored: an explicit commit takes its place, unless that fails.

        What the commit itself stores is forgotten when it has succeeded, and not before: until then
        another commit has to store it, too.

        Args:
            offsets: Of the commit, which is made inside.
        """
        states = {each: self._states[each] for each in offsets if each in self._states}
        before = {each: state.stored for each, state in states.items()}
        for each, state in states.items():
            if state.stored != offsets[each]:
                state.stored = None
        try:
            yield
        except BaseException:  # a commit that is cancelled is no more certain than one that fails
            for each, state in states.items():
                state.stored = state.stored or before[each]
            raise
        for each, state in states.items():
            if state.stored == offsets[each]:  # nothing else was stored since
                state.stored = None

    def consumed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the application is done with, ready to be committed."""
        chosen = self._states if partitions is None else partitions
        states = [self._states[each] for each in chosen if each in self._states]
        done = ((state.partition, self._done(state)) for state in states)
        return {partition: position for partition, position in done if position is not None}

    def sought(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> tuple[TopicPartition, ...]:
        """Return what a commit of positions leaves out, as a seek to an end is not finished."""
        if not self.stores_offsets:
            return ()
        chosen = self._states if partitions is None else partitions
        return tuple(p for p in chosen if (state := self._states.get(p)) and state.is_sought)

    def tell_sought(
        self, group: str | None, what: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Log what a commit that cannot wait leaves out.

        Args:
            group: Its group.
            what: Which commit it is.
            partitions: Whose positions it stores; those of all by default.
        """
        if left := self.sought(partitions):
            log.warning(
                "group %s: %s leaves out %s: a seek to an end is not finished, so the group's"
                " offset stays as it was. Call commit(), or position() before, to wait for it",
                *(group, what, ", ".join(f"{each.topic}-{each.partition}" for each in left)),
            )

    def _done(self, state: PartitionState) -> OffsetAndMetadata | None:
        if not self.stores_offsets:
            return state.stored
        if state.consumed is None:
            return None
        return OffsetAndMetadata(state.consumed, leader_epoch=state.leader_epoch)
