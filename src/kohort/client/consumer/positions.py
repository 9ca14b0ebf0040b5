"""Find where to start in a partition: at its committed offset, or by `auto_offset_reset`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.commits.offsets import fetch_committed, shown, try_list_offsets
from kohort.client.consumer.partitions import EARLIEST, LATEST, Partitions, PartitionState
from kohort.client.net.backoff import Backoff, Deadline, may_pass, needs_help
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.incidents import SHOWN_BY_METADATA
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.member.commits import CommitIdentity
from kohort.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger("kohort.client")

# The member's epoch has changed, or it was removed: ask again with its new identity (L37), after
# a pause, without which the Java client looped at full speed (KAFKA-20765).
_OVERTAKEN = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

# One failure is not a problem, because leaders and coordinators move. This many in a row are.
_FAILURES = 4
_MOST_SHOWN = 20


class Positions:
    """Finds missing positions of partitions in the background.

    Args:
        cluster: The brokers.
        config: Settings.
        partitions: All partitions.
        coordinator: The group's coordinator, None when there is no group.
        asks_as: Returns the member identity for queries of committed offsets (KIP-848); None for no
            member.
        on_change: Called when positions were found, or can never be found.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        partitions: Partitions,
        coordinator: Coordinator | None,
        asks_as: Callable[[], CommitIdentity | None],
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._partitions = partitions
        self._coordinator = coordinator
        self._asks_as = asks_as
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._deadline = Deadline(None)

    @property
    def trouble(self) -> KohortError | None:
        """The error that currently keeps positions from being found, None when there is none."""
        return self._deadline.cause

    def find(self) -> None:
        """Start looking for missing positions."""
        if self._missing() and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _missing(self) -> list[PartitionState]:
        """Return the states to look up; listeners may seek in held partitions, or ask for them."""
        return [
            state
            for state in self._partitions
            if state.position is None
            and (state.is_asked or not state.is_held)
            and state.failure is None
        ]

    async def _run(self) -> None:
        pause = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        failures = 0
        while states := self._missing():
            begun = [(state, state.incarnation) for state in states]
            try:
                await self._look_up(begun)
            except KohortError as error:
                if not needs_help(error):
                    failures += 1
                    self._deadline.note(error)
                    self._note(begun, error, failures)
                    await asyncio.sleep(pause.next_s())
                    continue
                for state in _unchanged(begun):
                    state.failure = error
            failures = 0
            self._cluster.incidents.over(self, "positions can be found again")
            self._on_change()

    def _note(
        self, begun: list[tuple[PartitionState, int]], error: KohortError, failures: int
    ) -> None:
        """Log a lasting error; log an unusual one at once, and raise it in polls."""
        log.debug("positions: %s", error)
        is_usual = may_pass(error) or _is_overtaken(error)
        if not is_usual:
            for state in _unchanged(begun):
                state.note_trouble(error)
            self._on_change()
        is_shown = isinstance(error, KafkaError) and error.code in SHOWN_BY_METADATA
        if not is_usual or (failures >= _FAILURES and not is_shown):
            where = ", ".join(shown(state.partition) for state, _ in begun[:_MOST_SHOWN])
            text = f"no position for {where}: {error}; no records are read until there is one"
            cause = error.name if isinstance(error, KafkaError) else str(error)
            self._cluster.incidents.note(self, cause, text)

    async def _look_up(self, begun: list[tuple[PartitionState, int]]) -> None:
        self._deadline = deadline = Deadline(self._config.default_api_timeout_ms)
        await self._use_committed([each for each in begun if each[0].reset_to is None], deadline)
        targets = {
            state.partition: self._target(state)
            for state in _unchanged(begun)
            if state.failure is None
        }
        if not targets:
            return
        read_committed = self._config.isolation_level == "read_committed"
        found, error = await try_list_offsets(
            self._cluster, targets, deadline, read_committed=read_committed
        )
        for state in _unchanged(begun):
            if state.partition in found:
                self._tell_passed(state, found[state.partition].offset)
                state.found(found[state.partition].offset)
        if error is not None:  # read the positions that were found: one topic may never appear
            self._on_change()
            self._cluster.request_refresh()
            raise error

    def _tell_passed(self, state: PartitionState, offset: int) -> None:
        """Log skipped records, for example those that retention deleted unread."""
        before = state.out_of_range
        if before is None or offset == before:
            return
        place = shown(state.partition)
        policy = f"{offset} (auto.offset.reset={self._config.auto_offset_reset})"
        if offset < before:
            log.warning(
                "%s has no offset %d, which is past its end: going back to %s. The end of the"
                " partition was lost, or never existed",
                *(place, before, policy),
            )
        else:
            log.warning(
                "%s no longer has offset %d: continuing at %s. Offsets %d to %d, up to %d"
                " records, are not read: %s",
                *(place, before, policy, before, offset - 1, offset - before),
                "they were deleted"
                if state.reset_to == EARLIEST
                else "they were deleted, or are before the end",
            )

    async def _use_committed(
        self, begun: list[tuple[PartitionState, int]], deadline: Deadline
    ) -> None:
        states = [state for state, _ in begun]
        if not states:
            return
        if self._coordinator is not None:
            wanted = [state.partition for state in states]
            found = await self._fetch_committed(self._coordinator, wanted, deadline)
            for state in _unchanged(begun):
                if state.partition in found:
                    state.found(found[state.partition].offset)
                    state.leader_epoch = found[state.partition].leader_epoch
        if self._config.auto_offset_reset == "none":
            for state in _unchanged(begun):
                state.failure = KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{shown(state.partition)} has no committed offset, and auto.offset.reset is"
                    " none",
                )

    async def _fetch_committed(
        self, coordinator: Coordinator, wanted: list[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        member = self._asks_as()
        if member is None:
            return await fetch_committed(coordinator, wanted, deadline)
        return await fetch_committed(
            coordinator,
            wanted,
            deadline,
            member_id=member.member_id,
            generation=member.generation,
        )

    def _target(self, state: PartitionState) -> int:
        if state.reset_to is not None:
            return state.reset_to
        return EARLIEST if self._config.auto_offset_reset == "earliest" else LATEST


def _is_overtaken(error: KohortError) -> bool:
    return isinstance(error, KafkaError) and error.code in _OVERTAKEN


def _unchanged(begun: list[tuple[PartitionState, int]]) -> list[PartitionState]:
    """Return the states that still wait for the lookup that was started."""
    return [
        state
        for state, incarnation in begun
        if state.incarnation == incarnation and state.position is None
    ]
