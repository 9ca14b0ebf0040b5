"""The positions of a simulated consumer, its brokers' answers about partitions, and its calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from kohort.client.config import arguments
from kohort.client.consumer.commits.offsets import OffsetAndTimestamp
from kohort.client.net.metadata import PartitionMetadata, TopicMetadata
from kohort.errors import KohortError, LocalProtocolError
from kohort.simulation.groups.application import Application
from kohort.simulation.groups.ledger import GROUP
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.simulation.groups.topics import Topic

# Leaders are not simulated: every partition has this one.
_LEADER = 0

_KEPT = 400
_SHOWN = 15


class CommittingApplication(Application):
    """An application whose consumer commits on its own."""

    def look_up_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard answers about positions that were requested before a commit."""
        for partition in partitions:
            if partition in self._fetching:
                self._fetching.discard(partition)
                self._lives[partition] += 1


class SimulatedPositions:
    """The methods of `SimulatedConsumer` for positions and offsets.

    Args:
        application: The application of the member.
        log: Records the calls.

    Attributes:
        held: Partitions that are being assigned, without fetched records yet.
        unsimulated: The first unsupported call; None if there was none.
    """

    def __init__(self, application: CommittingApplication, log: CallLog) -> None:
        self.held: frozenset[TopicPartition] = frozenset()
        self.unsimulated: NotSimulatedError | None = None
        self._application = application
        self._client = application.client
        self._log = log

    # --------------------------------------------------------------------------- positions

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return frozenset(self._application.believes)

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record.

        Raises:
            LocalProtocolError: The partition is not assigned.
        """
        where = arguments.partition(partition)
        arguments.timeout_ms_or_none(timeout_ms)
        self._check(where)
        known = self._application.positions.get(where)
        return known if known is not None else max(self._committed(where), 0)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition, if known."""
        known = sorted(self._application.positions.items())
        return {each: at for each, at in known if at is not None}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition; None before its first fetch.

        Raises:
            LocalProtocolError: The partition is not assigned.
        """
        where = arguments.partition(partition)
        self._check(where)
        is_fetched = self._application.positions[where] is not None and where not in self.held
        return self._client.world.topics.end(where) if is_fetched else None

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets the position is behind the end; None while either is unknown.

        Raises:
            LocalProtocolError: The partition is not assigned.
        """
        end = self.highwater(partition)
        position = self._application.positions[arguments.partition(partition)]
        return None if end is None or position is None else max(0, end - position)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from `offset` in a partition.

        Raises:
            ValueError: The offset is negative.
            LocalProtocolError: The partition is not assigned.
        """
        where, next_offset = arguments.partition(partition), arguments.offset(offset)
        self._check(where)
        self._note(f"seek({shown([where])}, {next_offset})")
        self._application.seek(where, next_offset)
        client, ledger = self._client, self._client.world.ledger
        ledger.positions[client.name, client.life, where] = next_offset
        ledger.reading(where).is_clean = False  # records delivered twice are expected then

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move to the first record of these partitions, by default of all."""
        for partition in self._assigned(partitions or tuple(self.assignment())):
            self.seek(partition, 0)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move past the last record of these partitions, by default of all."""
        for partition in self._assigned(partitions or tuple(self.assignment())):
            self.seek(partition, self._client.world.topics.end(partition))

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions."""
        wanted = self._assigned(partitions)
        self._note(f"pause({shown(wanted)})")
        self._application.paused |= frozenset(wanted)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        wanted = self._assigned(partitions)
        self._note(f"resume({shown(wanted)})")
        self._application.paused -= frozenset(wanted)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(self._application.paused)

    # ------------------------------------------------------------------------- brokers' data

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        wanted = arguments.partitions(partitions)
        arguments.timeout_ms_or_none(timeout_ms)
        return dict.fromkeys(wanted, 0)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        wanted = arguments.partitions(partitions)
        arguments.timeout_ms_or_none(timeout_ms)
        return {each: self._client.world.topics.end(each) for each in wanted}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Not simulated: records have no timestamps.

        Raises:
            NotSimulatedError: Always, unless an argument is wrong.
        """
        arguments.timestamps(timestamps)
        arguments.timeout_ms_or_none(timeout_ms)
        self._not_simulated("offsets_for_times", "simulated records have no timestamps")

    def partitions_for_topic(
        self, topic: str, timeout_ms: int | None = None
    ) -> frozenset[int] | None:
        """Return the numbers of a topic's partitions; None if the topic does not exist."""
        name = arguments.topic(topic)
        arguments.timeout_ms_or_none(timeout_ms)
        found = self._client.world.topics.present.get(name)
        return frozenset(range(len(found.ends))) if found and found.ends else None

    def topic_metadata(
        self, topics: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicMetadata]:
        """Return ids and partitions of topics; missing topics are left out."""
        wanted = arguments.topics(topics)
        arguments.timeout_ms_or_none(timeout_ms)
        present = self._client.world.topics.present
        return {name: _described(present[name]) for name in wanted if name in present}

    def topics(self, timeout_ms: int | None = None) -> frozenset[str]:
        """Return the names of all topics."""
        arguments.timeout_ms_or_none(timeout_ms)
        return frozenset(self._client.world.topics.present)

    # -------------------------------------------------------------------------------- helpers

    def _assigned(self, partitions: tuple[TopicPartition, ...]) -> list[TopicPartition]:
        """Return the partitions after checking that all are assigned."""
        wanted = sorted(set(arguments.partitions(partitions)))
        for partition in wanted:
            self._check(partition)
        return wanted

    def _check(self, partition: TopicPartition) -> None:
        if partition not in self._application.positions:
            raise LocalProtocolError(f"{shown([partition])} is not assigned to this consumer")

    def _committed(self, partition: TopicPartition) -> int:
        return self._client.world.ledger.committed(GROUP, partition)

    def _note(self, text: str) -> None:
        self._log.note(self._client.world.engine.now, self._client.name, text)

    def _not_simulated(self, call: str, why: str) -> NoReturn:
        error = NotSimulatedError(
            f"Consumer.{call} cannot be simulated: {why}. The listener is not to blame: test it"
            " with a Consumer and an EmbeddedBroker, or simulate one without that call"
        )
        self.unsimulated = self.unsimulated or error
        raise error


def _described(topic: Topic) -> TopicMetadata:
    partitions = {
        number: PartitionMetadata(number, _LEADER, 0, (_LEADER,), (_LEADER,))
        for number in range(len(topic.ends))
    }
    return TopicMetadata(topic.name, topic.topic_id, partitions)


class NotSimulatedError(KohortError):
    """A listener does something valid that the simulation does not support.

    `simulate` raises it even if the listener catches it: the run is inconclusive.
    """


class CallLog:
    """The latest calls to listeners and by listeners, by virtual time."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=_KEPT)

    def note(self, now: int, name: str, text: str) -> None:
        """Record one call.

        Args:
            now: Virtual time in milliseconds.
            name: Name of the member.
            text: The call.
        """
        self._lines.append((now, name, text))

    def shown(self, name: str | None = None) -> str:
        """Return the last lines, of one member or of all; empty if there are none."""
        chosen = [line for line in self._lines if name in (None, line[1])][-_SHOWN:]
        rows = [f"  {now:>10,} ms  {who}: {text}" for now, who, text in chosen]
        return "\n".join(["last calls of listeners, and by listeners:", *rows]) if rows else ""


def shown(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as displayed by Kafka's tools."""
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))


def call_text(method: str, partitions: Iterable[TopicPartition]) -> str:
    """Return the log's text for a call to a listener."""
    return f"{method}({shown(partitions)})"
