"""The rebalances of one group: their causes, the moved partitions, and gaps in ownership."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kohort.observe.timeline import OwnershipTimeline
from kohort.types import TopicPartition


class Move(Struct, frozen=True):
    """A partition that changed owners.

    Attributes:
        partition: The partition.
        source: Its previous owner; None if it had none.
        target: Its new owner; None if it has none.
    """

    partition: TopicPartition
    source: str | None
    target: str | None


class Rebalance(Struct, frozen=True):
    """One change of the group's assignment, from its cause to the new owners.

    Attributes:
        generation: The resulting generation (classic protocol) or group epoch; the rebalance's
            ordinal number if only descriptions of the group, which lack it, were observed.
        start_ms: When it began, by the observer's clock.
        end_ms: When the new owners had their partitions.
        member: Label of the member that caused it; empty if no member did.
        cause: The cause in a few words.
        moves: The partitions whose owner changed.
        longest_gap_ms: Longest time that a partition had no owner since the previous rebalance; so
            it counts from the death of a member, not from when the coordinator learned of it.
        longest_stop_ms: The same for the partitions that stayed with their owner, which shows how
            long they stopped. None if none stayed.
    """

    generation: int
    start_ms: int
    end_ms: int
    member: str
    cause: str
    moves: tuple[Move, ...]
    longest_gap_ms: int
    longest_stop_ms: int | None = None


def moves_between(
    before: Mapping[TopicPartition, str | None], after: Mapping[TopicPartition, str | None]
) -> tuple[Move, ...]:
    """Return the partitions whose owner differs, in order."""
    return tuple(
        Move(partition, before.get(partition), owner)
        for partition, owner in sorted(after.items())
        if before.get(partition) != owner
    )


class RebalanceLog:
    """Builds `Rebalance` values from an observer's facts."""

    def __init__(self, timeline: OwnershipTimeline) -> None:
        """Follow the rebalances of the group whose owners are in `timeline`."""
        self.finished: list[Rebalance] = []
        self._timeline = timeline
        self._settled: dict[TopicPartition, str | None] = timeline.owners()
        self._settled_ms = timeline.start_ms
        self._open: tuple[int, str, str] | None = None

    @property
    def running(self) -> bool:
        """Whether a rebalance is in progress."""
        return self._open is not None

    def begin(self, now_ms: int, member: str, cause: str) -> None:
        """Record the start; a cause during a running rebalance is ignored."""
        if self._open is None:
            self._open = (now_ms, member, cause)

    def end(self, now_ms: int, generation: int) -> Rebalance | None:
        """Record that the owners are settled; return the rebalance, or None if none was running."""
        if self._open is None:
            return None
        start_ms, member, cause = self._open
        self._open = None
        owners = self._timeline.owners()
        stayed = [tp for tp, owner in owners.items() if owner and owner == self._settled[tp]]
        gap = self._timeline.longest_gap_ms
        rebalance = Rebalance(
            generation=generation,
            start_ms=start_ms,
            end_ms=now_ms,
            member=member,
            cause=cause,
            moves=moves_between(self._settled, owners),
            longest_gap_ms=gap(self._settled_ms, now_ms),
            longest_stop_ms=gap(self._settled_ms, now_ms, stayed) if stayed else None,
        )
        self._settled, self._settled_ms = owners, now_ms
        self.finished.append(rebalance)
        return rebalance


def describe_moves(moves: tuple[Move, ...]) -> str:
    """Return one line that lists the moved partitions with old and new owners."""
    routes: dict[tuple[str | None, str | None], list[int]] = {}
    for move in moves:
        routes.setdefault((move.source, move.target), []).append(move.partition.partition)
    parts = (
        f"{', '.join(map(str, numbers))}: {source or 'no owner'} → {target or 'no owner'}"
        for (source, target), numbers in routes.items()
    )
    return "; ".join(parts) or "nothing moved"
