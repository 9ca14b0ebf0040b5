"""Inspects a region from outside, and asks it for drains, resets and stops."""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kohort.client import AsyncConsumer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import KohortError
from kohort.region.errors import RegionError
from kohort.region.group_members import described
from kohort.region.log.control import ControlLog
from kohort.region.machines.coding import decode
from kohort.region.machines.describing import (
    are_all_gone,
    gone_among,
    strangers_among,
    what_it_waits_for,
)
from kohort.region.machines.records import DRAIN, RESET, STOP, Ask, Drain, Reset
from kohort.region.settings import ClientSettings, admin_settings, consumer_settings
from kohort.types import TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client import ConsumerRecord
    from kohort.region.machines.events import GroupMember
    from kohort.region.machines.records import RegionRecord
    from kohort.region.machines.state import Operator, RegionState


# How long a timed-out request looks for operators that have left the group.
_LOOK_S = 5.0
# Forced resets are counted over this period.
_LATELY_MS = 3_600_000


class RegionWaitError(RegionError):
    """A request was not fulfilled in time; the message shows what the region waits for."""


class Entry(Struct, frozen=True):
    """A record of the control topic.

    Attributes:
        offset: Its offset.
        timestamp: When it was written, in milliseconds since 1970.
        record: The record; None: a tombstone.
    """

    offset: int
    timestamp: int
    record: RegionRecord | None


@asynccontextmanager
async def opened(
    region: str,
    settings: ClientSettings,
    prepare: Callable[[ControlLog], object] = lambda _: None,
) -> AsyncIterator[ControlLog]:
    """Follow the control topic of an existing region.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        prepare: Called with the log before it is read.

    Raises:
        ControlTopicError: The region does not exist.
        KafkaError: The brokers cannot be asked, or refuse.
    """
    control = ControlLog(region, settings, create=False)
    following: asyncio.Task[None] | None = None
    try:
        await control.open()
        prepare(control)
        following = asyncio.create_task(control.follow())
        yield control
    finally:
        if following is not None:
            following.cancel()
            # `ControlLog` gives the waiting tasks the error that ended the log.
            await asyncio.gather(following, return_exceptions=True)
        await control.close()


class Sight(Struct, frozen=True):
    """A region, including facts that its log does not show.

    Attributes:
        state: The region according to its log.
        strangers: Members of its group that are not its operators.
        problem: Why the group cannot be described; empty if it was.
        gone: Operators that are no longer in the group; empty while it rebalances.
        waiting_s: How long it has been waiting for operators, in seconds; None: it is not waiting.
        missing_topics: Topics that members subscribe to by name but that do not exist.
        forced_resets: Number of recent forced resets, which do not count for `max_resets`.
        forced_since_ms: Start of the period they are counted in, in milliseconds since 1970: an
            hour ago, or the time of the log's first record; None: the log is empty.
        ends: The end offsets of partitions, as far as known.
        unmeasured: Why they are unknown; empty if they are known, or the topics do not exist.
    """

    state: RegionState
    strangers: tuple[GroupMember, ...] = ()
    problem: str = ""
    gone: tuple[Operator, ...] = ()
    waiting_s: int | None = None
    missing_topics: tuple[str, ...] = ()
    forced_resets: int = 0
    forced_since_ms: int | None = None
    ends: Mapping[TopicPartition, int] = {}
    unmeasured: str = ""


class Clock:
    """Tracks when checkpoints and resets began, by the brokers' clock.

    Args:
        control: The region's log; reading must not have begun.
    """

    def __init__(self, control: ControlLog) -> None:
        self._began_ms: int | None = None
        self._first_ms: int | None = None
        self._last_ms = 0
        # The time of the last record that is not a request.
        self._written_ms: int | None = None
        # The time of each forced reset by attempt; repeated records count once.
        self._forced: dict[int, int] = {}
        control.on_record(self._hear)

    def _hear(self, record: ConsumerRecord) -> None:
        self._first_ms = record.timestamp if self._first_ms is None else self._first_ms
        self._last_ms = record.timestamp
        with suppress(RegionError):  # the fold reports the error
            known = None if record.value is None else decode(record.key, record.value)
            if known is not None and not isinstance(known, Ask):
                self._written_ms = record.timestamp
            if isinstance(known, Drain | Reset):
                self._began_ms = record.timestamp
            if isinstance(known, Reset) and known.forced:
                self._forced.setdefault(known.attempt, record.timestamp)

    def forced(self) -> tuple[int, int | None]:
        """Return the number of recent forced resets, and the start of that period in log time."""
        if self._first_ms is None:
            return 0, None
        since = max(self._first_ms, self._last_ms - _LATELY_MS)
        return sum(at >= since for at in self._forced.values()), since

    def waiting_s(self, state: RegionState, gone: Collection[Operator] = ()) -> int | None:
        """Return how long a region has been waiting for operators, in seconds; None: it is not.

        If all have left and the region was not waiting before, the time counts from their last
        records.
        """
        is_waiting = any(state.awaited()) or (state.drain is not None and state.drain.missing)
        since = self._began_ms if is_waiting else None
        if since is None and are_all_gone(state, gone):
            since = self._written_ms
        if since is None:
            return None
        return max(0, time.time_ns() // 1_000_000 - since) // 1_000


@asynccontextmanager
async def sights(
    region: str, settings: ClientSettings, *, measures: bool = True
) -> AsyncIterator[Callable[[], Awaitable[Sight]]]:
    """Yield a function that inspects an existing region and its group.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        measures: Whether to also request the end offsets of partitions.

    Raises:
        ControlTopicError: The region does not exist.
        KafkaError: The brokers cannot be reached, or refuse. If only the group cannot be described,
            the result reports it.
    """
    clocks: list[Clock] = []
    async with (
        opened(region, settings, lambda control: clocks.append(Clock(control))) as control,
        AsyncAdminClient(**admin_settings(settings)) as admin,
    ):
        yield partial(look_around if measures else _looked_at_group, control, admin, clocks[0])


async def look_around(control: ControlLog, admin: AsyncAdminClient, clock: Clock) -> Sight:
    """Inspect a region, its group and the ends of its partitions.

    If the group or the ends are unavailable, the result reports it.

    Args:
        control: The region's log; `follow` must be running.
        admin: The admin client.
        clock: The clock of the same log.

    Raises:
        Exception: The error that ended `follow`.
    """
    seen = await _looked_at_group(control, admin, clock)
    try:
        topics = await admin.list_topics()
        places = {TopicPartition(each.topic, each.partition) for each in seen.state.partitions}
        ends = await control.ends({each for each in places if each.topic in topics})
    except KohortError as error:
        return replace(seen, unmeasured=f"the lag is unknown: {error}")
    return replace(seen, ends=ends)


async def _looked_at_group(control: ControlLog, admin: AsyncAdminClient, clock: Clock) -> Sight:
    before = await control.caught_up()
    if before.settings is None:
        return Sight(before)
    forced, since = clock.forced()
    waiting_s = clock.waiting_s(before)
    try:
        group = await described(admin, before.settings.group_id)
        missing = group.topics - await admin.list_topics() if group.topics else ()
    except KohortError as error:
        problem = f"group {before.settings.group_id} cannot be described: {error}"
        seen = Sight(before, problem=problem, waiting_s=waiting_s)
        return replace(seen, forced_resets=forced, forced_since_ms=since)
    state = await control.caught_up()  # operators register before they join
    gone = gone_among(group.members, before, state) if group.is_at_rest else []
    strangers = tuple(strangers_among(group.members, state))
    return Sight(
        state,
        strangers,
        gone=tuple(gone),
        waiting_s=clock.waiting_s(state, gone),
        missing_topics=tuple(sorted(missing)),
        forced_resets=forced,
        forced_since_ms=since,
    )


async def look(region: str, settings: ClientSettings) -> RegionState:
    """Return the current state of a region."""
    async with opened(region, settings) as control:
        return await control.caught_up()


async def ask(
    region: str,
    settings: ClientSettings,
    what: str,
    *,
    force: bool = False,
    why: str = "",
    timeout_s: float = 60.0,
) -> RegionState:
    """Ask a region for a drain, a reset or a stop, and wait until it is done.

    A drain is done once the output of its checkpoint is visible.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        what: `drain`, `reset` or `stop`.
        force: Whether a reset starts a new budget of consecutive resets.
        why: The reason, for the region's history.
        timeout_s: Timeout in seconds, including waits for the brokers; after that, checking the
            group takes at most a few seconds more.

    Returns:
        The region afterwards.

    Raises:
        RegionWaitError: It was not done in time, or cannot be done; the message names the obstacle.
        ControlTopicError: The region does not exist.
    """
    asking = _Asking(region, what, force, why)
    try:
        async with asyncio.timeout(timeout_s):
            return await asking.run(settings)
    except TimeoutError:
        if asking.left is not None:
            return asking.left
        waits_for = await asking.waits_for(settings)
        missed = f"{asking.missed} within {timeout_s:g} s"
        raise RegionWaitError(f"region {region}: {missed}: {waits_for}") from None


class _Asking:
    """One request, repeated if the region resets before fulfilling it.

    Attributes:
        left: The region since all operators have left because of the request; None: they have not.
    """

    def __init__(self, region: str, what: str, force: bool, why: str) -> None:
        self._region = region
        self._what = what
        self._force = force
        self._why = why
        self._writer = f"{user()}.{os.getpid()}"
        self._attempt = 0
        self._cause = ""
        # The requested checkpoint once it is complete; it is not visible yet.
        self._complete: int | None = None
        # The region before the request, and its last known state; None: not read yet.
        self._before: RegionState | None = None
        self._seen: RegionState | None = None
        self.left: RegionState | None = None

    async def run(self, settings: ClientSettings) -> RegionState:
        """Send the request, and return the region once it is fulfilled.

        Raises:
            RegionWaitError: It cannot be fulfilled.
        """
        async with opened(self._region, settings) as control:
            self._before = self._seen = before = await control.caught_up()
            if not before.operators:
                raise RegionWaitError(f"region {self._region}: {what_it_waits_for(before)}")
            await self._ask(control, before)
            state = await self._until_it_happened(control, before)
        went_back = state.must_reset or state.attempt > before.attempt
        if self._what == STOP and went_back and state.completed == before.completed:
            raise RegionWaitError(
                f"region {self._region}: all operators have left, without a last checkpoint: what "
                f"was processed since checkpoint {state.completed} is not in the output, and is "
                f"processed again{self._went_back(before, state)}; the operators' logs say why"
            )
        return await self._until_it_ended(control, state) if self._what == STOP else state

    async def _until_it_ended(self, control: ControlLog, state: RegionState) -> RegionState:
        """Wait for the controller's remaining work after the last operator has left.

        A checkpoint in which no operator takes part may still become complete, and output may
        become visible. Controllers wait at most `drain_timeout_ms` for that.
        """
        self.left = state
        limit_ms = state.settings.drain_timeout_ms if state.settings else 0
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000):
                while self.left.drain is not None or self.left.unpublished:
                    found = await control.advanced()
                    if found is not None and found.operators:
                        break  # the next run of the region has begun
                    self.left = found or self.left
        return self.left

    async def _until_it_happened(self, control: ControlLog, before: RegionState) -> RegionState:
        state: RegionState | None = await control.caught_up()
        while state is None or not self._has_happened(before, state):
            if state is not None:
                self._seen = state
                self._cause = state.must_reset or self._cause
                if self._is_forgotten(state):
                    await self._ask(control, state)
            state = await control.advanced()
        return state

    async def _ask(self, control: ControlLog, state: RegionState) -> None:
        self._attempt = state.attempt
        wanted = Ask(
            self._writer, self._what, state.checkpoint + 1, state.attempt, self._force, self._why
        )
        await control.append([wanted])

    @property
    def missed(self) -> str:
        """What was not done."""
        if self._complete is None:
            return f"the {self._what} did not happen"
        return f"checkpoint {self._complete} is complete but not visible"

    async def waits_for(self, settings: ClientSettings) -> str:
        """Describe what prevents it."""
        if self._before is None or self._seen is None:
            return "its log could not be read"
        sight = await self._looked(settings, self._seen)
        return what_it_waits_for(sight.state, sight.gone) + self._went_back(
            self._before, sight.state
        )

    async def _looked(self, settings: ClientSettings, seen: RegionState) -> Sight:
        """Look at the region's group, too; if that fails, use only the log."""
        try:
            async with (
                asyncio.timeout(_LOOK_S),
                sights(self._region, settings, measures=False) as look_again,
            ):
                return await look_again()
        except (TimeoutError, KohortError):
            return Sight(seen)

    def _is_forgotten(self, state: RegionState) -> bool:
        """Whether a reset has ended the requested checkpoint."""
        is_back = state.attempt > self._attempt and next(state.awaited(), None) is None
        return self._what == DRAIN and is_back and self._complete is None

    def _has_happened(self, before: RegionState, now: RegionState) -> bool:
        if self._what == DRAIN:
            if self._complete is None and now.completed > before.checkpoint:
                self._complete = now.completed
            return self._complete is not None and not now.is_unpublished(self._complete)
        if self._what == RESET:
            return now.attempt > before.attempt and next(now.awaited(), None) is None
        assert self._what == STOP
        return not now.operators

    def _went_back(self, before: RegionState, state: RegionState) -> str:
        """Describe how often the region reset meanwhile, and why."""
        times = state.attempt - before.attempt
        if self._what == RESET or times <= 0:
            return ""
        why = f", the last time because {self._cause}" if self._cause else ""
        return f" (it was reset to checkpoint {state.completed} {times} times meanwhile{why})"


def user() -> str:
    """Return the name of this process's user, or the user id if it has no name (containers)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        return str(os.getuid())


async def history(region: str, settings: ClientSettings) -> list[Entry]:
    """Return the records of a region that compaction has not removed yet, oldest first."""
    async with opened(region, settings) as control:
        place = TopicPartition(control.topic, 0)
        found: list[Entry] = []
        async with AsyncConsumer(
            **consumer_settings(settings, auto_offset_reset="earliest")
        ) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            while consumer.positions().get(place, 0) < end:
                records = (await consumer.poll(1_000)).get(place, [])
                found += [Entry(each.offset, each.timestamp, _decoded(each)) for each in records]
        return found


def _decoded(record: Any) -> RegionRecord | None:  # noqa: ANN401  # a ConsumerRecord
    try:
        return None if record.value is None else decode(record.key, record.value)
    except RegionError:
        return None
