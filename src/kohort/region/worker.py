"""One process of a region on an event loop: log, operator and candidate together."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import uuid
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, field

from kohort.client import AsyncConsumer
from kohort.region.controlling import Controlling
from kohort.region.draining import Draining
from kohort.region.group_members import check_creation
from kohort.region.log.control import ControlLog
from kohort.region.machines.controller import ControllerConfig, ControllerMachine
from kohort.region.machines.operator import OperatorConfig, OperatorMachine
from kohort.region.machines.operator_session import RESET
from kohort.region.machines.records import DRAIN, PERIODIC, OperatorId, RegionSettings
from kohort.region.machines.state import RegionState
from kohort.region.metrics import (
    ControllerMetrics,
    OperatorMetrics,
    RegionMetrics,
    measured,
)
from kohort.region.operating import Operating
from kohort.region.settings import (
    NO_CREATION,
    ClientSettings,
    member_config,
    merge_timeout_ms,
    poll_interval_ms,
)
from kohort.region.sinks.sink import CutWriter, RegionSink, identity_of
from kohort.region.source import warn_of_missing
from kohort.region.starts import StartPosition
from kohort.region.states import StateTopic
from kohort.region.work import Inbox, Report
from kohort.values import replace

T = TypeVar("T")

# As in IBM Streams, this many polls of records may wait for the function, if memory allows.
POLLS_WAITING = 100
# So that partitions added to a topic are soon read.
_METADATA_MAX_AGE_MS = 2_000


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """The configuration of one process of a region.

    Attributes:
        region: Name of the region.
        operator: Name of the operator, unique in the region.
        topics: Topics to read.
        pattern: Alternatively, a regular expression for topics, as text or compiled.
        settings: The settings that all processes of the region share.
        rebalance: "checkpoint" hands partitions over with a checkpoint, "reset" resets the region.
        start: Where to start partitions.
        replication_factor: Replicas of the region's own topics; -1: the broker's default.
        trigger_count: Number of records after which the operator asks for a checkpoint; 0: never.
        client: Kafka's settings for the consumer and all other clients.
    """

    region: str
    operator: str
    topics: Sequence[str]
    pattern: str | re.Pattern[str] | None
    settings: RegionSettings
    rebalance: str
    start: StartPosition
    replication_factor: int
    trigger_count: int = 0
    client: ClientSettings = field(default_factory=dict)


class Worker:
    """Runs an operator and a candidate; create it on the loop that it runs on.

    Args:
        config: Its configuration.
        sink: Receives the output.
        incarnation: Id of this process of the operator; random by default.
        fetches: Whether the inbox gets records; otherwise only commands, and others read.
    """

    def __init__(
        self,
        config: WorkerConfig,
        sink: RegionSink,
        *,
        incarnation: str | None = None,
        fetches: bool = True,
    ) -> None:
        self.id = OperatorId(config.operator, incarnation or uuid.uuid4().hex)
        self._fetches = fetches
        polled = member_config(config.client, config.settings).max_poll_records
        self.inbox = Inbox(POLLS_WAITING * polled, batch_max=polled)
        self.operating: Operating | None = None
        self.controlling: Controlling | None = None
        self.state: RegionState | None = None
        self._config = config
        self._sink = sink
        self._is_closing = False
        self._delivered = 0
        self._main: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Run until `close` is called, or until something fails.

        Raises:
            RegionError: The operator cannot continue; the message gives the reason.
            KafkaError: The brokers refuse a request.
        """
        config = self._config
        self._main = asyncio.current_task()
        control = ControlLog(
            config.region,
            config.client,
            replication_factor=config.replication_factor,
            check=partial(check_creation, config.region, config.settings.group_id, self._sink),
        )
        states = StateTopic(config.region, config.client, config.replication_factor)
        try:
            await control.open()
            await states.open()
            async with AsyncConsumer(**self._member_settings()) as consumer:
                await self._run(control, states, consumer)
        finally:
            self.inbox.close()
            await states.close()
            await control.close()

    async def _run(self, control: ControlLog, states: StateTopic, consumer: AsyncConsumer) -> None:
        config = self._config
        following = asyncio.create_task(control.follow())
        tasks = [following]
        try:
            await first(control.identified(), following)
            known = await first(control.caught_up(), following)
            opened = (config.region, control.topic_id, known.shown)
            await asyncio.to_thread(_load_arrow)
            await asyncio.to_thread(self._sink.open, *opened)
            sink = await asyncio.to_thread(identity_of, self._sink)
            config = replace(config, settings=replace(config.settings, sink=sink))
            self._config = config
            operating = self._operator(control, states, consumer)
            controlling = self._candidate(control)
            if self._is_closing:
                operating.close()
            for told in (self._note, operating.folded, controlling.folded):
                control.on_state(told)
                told(await first(control.caught_up(), following))
            await warn_of_missing(
                f"region {config.region}: {self.id}", config.client, config.topics
            )
            self._subscribe(consumer, operating)
            tasks += [asyncio.create_task(controlling.run()), asyncio.create_task(operating.poll())]
            await first(asyncio.shield(operating.closed), *tasks)
            patience_s = config.settings.drain_timeout_ms / 1000
            await first(controlling.show_last(patience_s), *tasks[:2])
            await first(operating.clear_up(), *tasks[:2])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.operating is not None:
                await self.operating.stop()

    def _note(self, state: RegionState) -> None:
        self.state = state

    def _operator(
        self, control: ControlLog, states: StateTopic, consumer: AsyncConsumer
    ) -> Operating:
        config = self._config
        machine = OperatorMachine(
            OperatorConfig(
                id=self.id,
                host=platform.node()[:249],
                process=str(os.getpid()),
                client_id=self._client_id,
                settings=config.settings,
                rebalance=config.rebalance,
                merge_timeout_ms=merge_timeout_ms(config.client, config.settings),
            )
        )
        self.operating = Operating(
            machine, control, states, consumer, self.inbox, config.start,
            fetches=self._fetches, draining=self._draining(consumer),
        )  # fmt: skip
        return self.operating

    def _draining(self, consumer: AsyncConsumer) -> Draining | None:
        """Return drains as in IBM Streams, for `rebalance="reset"`; a Spark query has none."""
        settings = self._config.settings
        if self._config.rebalance != RESET or not self._fetches:
            return None
        return Draining(
            consumer,
            self.inbox,
            empties_queue=settings.mode == PERIODIC,
            limit_ms=settings.drain_timeout_ms,
        )

    def _candidate(self, control: ControlLog) -> Controlling:
        config = self._config
        machine = ControllerMachine(
            ControllerConfig(incarnation=self.id.incarnation, settings=config.settings)
        )
        group_id = config.settings.group_id
        self.controlling = Controlling(machine, control, self._sink, config.client, group_id)
        return self.controlling

    @property
    def _client_id(self) -> str:
        return f"{self.id.name}.{self.id.incarnation[:12]}"

    def _member_settings(self) -> dict[str, Any]:
        config = self._config
        return {
            "isolation_level": "read_committed",
            "metadata_max_age_ms": _METADATA_MAX_AGE_MS,
            **config.client,
            "max_poll_interval_ms": poll_interval_ms(config.client, config.settings),
            "group_id": config.settings.group_id,
            "client_id": self._client_id,
            **NO_CREATION,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
        }

    def _subscribe(self, consumer: AsyncConsumer, operating: Operating) -> None:
        if self._config.pattern is None:
            consumer.subscribe(self._config.topics, listener=operating)
        else:
            consumer.subscribe(pattern=self._config.pattern, listener=operating)

    def writer_for(self, attempt: int) -> CutWriter:
        """Return a writer for the output of an attempt."""
        return self._sink.writer(self.id, attempt)

    def report(self, report: Report | Exception) -> None:
        """Take the result of an item of the inbox; may be called from any thread."""
        if self.operating is not None:
            with suppress(RuntimeError):  # the loop has already ended
                self.operating.report(report)

    def metrics(self) -> RegionMetrics:
        """Return the current metrics; may be called from any thread."""
        operating, controlling = self.operating, self.controlling
        return measured(
            OperatorMetrics() if operating is None else operating.metrics,
            ControllerMetrics() if controlling is None else controlling.metrics,
            self.inbox.pending,
        )

    def make_consistent(self, why: str) -> None:
        """Ask the region for a checkpoint, without waiting for it."""
        if self.controlling is not None:
            self.controlling.ask(DRAIN, why=why)

    def count(self, records: int) -> str:
        """Count delivered records; return a reason to ask for a checkpoint, or an empty text."""
        self._delivered += records
        if not 0 < self._config.trigger_count <= self._delivered:
            return ""
        self._delivered = 0
        return f"trigger_count={self._config.trigger_count} of {self.id.name}"

    def abandon(self) -> None:
        """Stop at once, without a last checkpoint: the region returns to the last complete one."""
        if self._main is not None:
            self._main.cancel()

    def close(self) -> None:
        """Start a clean stop, with a last checkpoint."""
        self._is_closing = True
        if self.operating is not None:
            self.operating.close()


def _load_arrow() -> None:
    """Load the libraries that write output, so that the first checkpoint need not wait."""
    import pyarrow as pa
    import pyarrow.parquet

    pa.array([0])  # makes pyarrow look for pandas now


async def first(wanted: Awaitable[T], *others: asyncio.Task[None]) -> T:
    """Wait for `wanted`, or raise the error of another task if that fails first."""
    future = asyncio.ensure_future(wanted)
    try:
        await asyncio.wait([future, *others], return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        ended = next(each for each in others if each.done())
        ended.result()
        raise RuntimeError("a task of the region ended")
    finally:
        if not future.done():
            future.cancel()
