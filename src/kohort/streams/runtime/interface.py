"""The interface between the runtime of an instance and the application.

The runtime handles Kafka and the group; the classes here know about neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, field

from kohort.streams.assignment.tasks import Task, Topology
from kohort.types import TopicPartition
from kohort.wire.records.record import Headers

if TYPE_CHECKING:
    from kohort.client.consumer.records import ConsumerRecord

Pair: TypeAlias = tuple[bytes, bytes | None]
"""A key and its value; None means that the key was deleted."""


class Output(NamedTuple):
    """A record to be written.

    Attributes:
        topic: Its topic. Kafka's default partitioner chooses the partition by the key.
        key: Its key; None: no key.
        value: Its value.
        timestamp: Milliseconds since the epoch; -1: the time of writing.
        headers: Its headers, copied from the record it was created from.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int = -1
    headers: Headers = ()


class Store(Protocol):
    """A task's state, as the runtime uses it."""

    def restore(self, pairs: Iterable[Pair], /) -> None:
        """Apply pairs from the changelog, in order; they do not count as changes."""

    def changes(self) -> Sequence[Pair]:
        """Return the changes since the last call, with the last value of each key."""

    def flush(self) -> None:
        """Write everything to disk that is not there yet."""


class StreamTask(Protocol):
    """A task: it has state, and processes records while it is active."""

    @property
    def outputs(self) -> list[Output]:
        """Records to be written; the runtime removes them."""

    @property
    def stores(self) -> Mapping[str, Store]:
        """Its stores, by name."""

    @property
    def changelogs(self) -> Mapping[str, str]:
        """The changelog topics by store name, for stores that have one."""

    def add(self, partition: TopicPartition, records: Sequence[ConsumerRecord], /) -> None:
        """Add records of one of its partitions, in order, for later processing."""

    def is_paused(self, partition: TopicPartition, /) -> bool:
        """Whether enough records of a partition are waiting."""

    def set_at_end(self, partition: TopicPartition, is_at_end: bool, /) -> None:
        """Record whether the last fetch returned the partition's records up to its end.

        A task that takes its records in timestamp order waits for partitions that are empty and not
        at their end (KIP-695).
        """

    def process_some(self, budget: int, /) -> int | Awaitable[int]:
        """Process up to `budget` waiting records; return the number processed.

        While the runtime awaits the result, it neither commits the task nor processes it again.
        """

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return the offset of the next record to process, for each partition that had records."""

    def close(self) -> None:
        """Release all resources; unflushed changes may be lost."""


class StateDirectory(Protocol):
    """The location of a task's state on disk."""

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        """Return the changelog offset of each store on disk."""

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int], /) -> None:
        """Store these offsets; called after the stores were flushed."""


class Application(Struct, frozen=True, kw_only=True):
    """A stream application, the same on all instances.

    Attributes:
        name: The name of the application and its group, and the prefix of its internal topics.
        topology: Its parts and their topics.
        changelogs: The changelog topics of each part, by part number.
        repartitions: Topics that the application both writes and reads, with their numbers of
            partitions; None: as many as the other topics of the part that reads it.
        make_task: Creates a task with the state in its directory.
        open_directory: Opens the directory of a task and locks it; None: state is only in memory.
            Takes the task and the id of the control topic, which a reset changes: state from before
            the reset must be dropped. Returns None for a task without state.
        stored: Returns the tasks that have state on disk.
        hold_state: Context manager that locks the state on disk against other instances; raises
            `StateInUseError` if another one uses it.
        written: The topics that each part writes, by part number, besides its changelogs.
        dead_letters: Topic for records that cannot be processed, created if missing; None: no
            topic.
        repartition_counts: Returns the numbers of partitions of the repartition topics, given those
            of the other topics; None: use `repartitions`.
        digest: Digest of the program; empty: not checked.
    """

    name: str
    topology: Topology
    make_task: Callable[[Task, StateDirectory | None], StreamTask]
    changelogs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    repartitions: Mapping[str, int | None] = field(default_factory=dict)
    open_directory: Callable[[Task, str], StateDirectory | None] | None = None
    stored: Callable[[], Iterable[Task]] = tuple
    hold_state: Callable[[], AbstractContextManager[object]] = nullcontext
    written: Mapping[int, frozenset[str]] = field(default_factory=dict)
    dead_letters: str | None = None
    repartition_counts: Callable[[Mapping[str, int]], Mapping[str, int]] | None = None
    digest: str = ""

    @property
    def outputs(self) -> frozenset[str]:
        """Topics that it writes, besides its changelogs."""
        return frozenset().union(*self.written.values())

    def changelogs_of(self, task: Task) -> frozenset[TopicPartition]:
        """Return the changelog partitions of a task."""
        topics = self.changelogs.get(task.sub_topology, ())
        return frozenset(TopicPartition(topic, task.partition) for topic in topics)
