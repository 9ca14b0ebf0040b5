"""The driver side of a query in a consistent region, between Spark's calls and the region.

The source's process is the operator. Spark calls it on the main thread. A second thread carries out
the region's commands and takes over the results of the query's sink. A third thread runs the event
loop of the region's worker once the sink is known. The first batch has no records and makes the
sink known: the operator's controller publishes the output, so it needs the sink itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kohort.region.errors import RegionError, RegionQueryError
from kohort.region.settings import member_config
from kohort.region.worker import Worker, WorkerConfig
from kohort.spark.checkpoint.manifest import Manifest, OffsetJson, Range, by_topic, trim
from kohort.spark.completion.control import Control, NotDrained
from kohort.spark.environment import log_like_spark
from kohort.spark.options.checks import check_stream_options
from kohort.spark.options.region import start_position
from kohort.spark.options.source import SourceOptions
from kohort.spark.region.ipc import Channel, HandOver
from kohort.spark.region.work import SparkWork
from kohort.spark.source.driver import IDLE_WAIT_S, stop_on_sigterm
from kohort.spark.source.lookup import client_settings
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import re

    from kohort.region.machines.records import RegionPartition
    from kohort.region.sinks.sink import SharedSink

log = logging.getLogger("kohort.spark")

# How often the second thread checks for results of the sink.
_LOOK_S = 0.02
_ENDS_S = 0.1
# A query that reads to the current end waits at least this long for partitions before it concludes
# that other operators own them all.
_SHARE_WAIT_S = 10.0
# Time to leave the group, in addition to the time for the last checkpoint.
_LEAVE_S = 10.0


class _StoppedError(Exception):
    """The operator has stopped cleanly although this query did not: its region was stopped."""


class RegionDriver:
    """One run of one query in a region; created in Spark's first call.

    Args:
        options: The query's options.

    Raises:
        OptionError: The options are invalid in a region.
    """

    def __init__(self, options: SourceOptions) -> None:
        check_stream_options(options)
        assert options.region is not None
        self._options = options
        self._control = Control()
        self._channel = Channel(self._control.directory)
        self._incarnation = uuid.uuid4().hex
        self._greeting = Manifest(
            operator=options.operator, nonce=self._incarnation, region=options.region.name
        )
        self._has_greeted = False
        self._operator: _Operator | None = None
        self._failure: BaseException | None = None
        self._is_over = False
        self._targets: dict[RegionPartition, int] | None = None
        self._ends: Mapping[RegionPartition, int] = {}
        self._parent = os.getppid()
        self._closing = threading.Event()
        self._closed = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="kohort-region-work", daemon=True)
        self._thread.start()
        stop_on_sigterm()
        log_like_spark()

    # ------------------------------------------------------------------- called by Spark's thread

    def initial(self) -> OffsetJson:
        """Return the offset before the first batch; nothing depends on it."""
        return Manifest(operator=self._options.operator, region=self._greeting.region).to_json()

    def prepare_available_now(self) -> None:
        """Stop at the current ends of the partitions that the group assigns to the query."""
        self._targets = {}

    def latest(self, start: OffsetJson, limit: int | None, *, waits: bool = False) -> OffsetJson:  # noqa: ARG002  # that of the other driver
        """Return the next batch, or `start` if there is nothing to read.

        Args:
            start: The last finished batch. Only the region knows which records are delivered.
            limit: Maximum number of records to read; None: unlimited.
            waits: Has no effect, because a region does not wait for a minimum.

        Raises:
            RegionQueryError: The query does not write with `region_sink`.
            RegionError: The operator cannot continue.
            KafkaError: The brokers refuse.
        """
        try:
            return self._latest(start, limit)
        except _StoppedError:
            return self._end_query(start)

    def _latest(self, start: OffsetJson, limit: int | None) -> OffsetJson:
        self._check()
        last = Manifest.from_json(start)
        if not self._has_greeted:
            self._has_greeted = True
            self._channel.offer(self._greeting, {})
            return self._greeting.to_json()
        operator = self._operator
        is_open = operator is not None and operator.work.open == last
        if operator is None or is_open:
            raise RegionQueryError(
                f"operator {last.operator}: Spark has finished batch {last.batch}, and no sink has "
                "handed it over. A query with consistentRegion writes with "
                "foreachBatch(kohort.spark.region_sink(sink)), in a session of the driver's own "
                "process"
            )
        if self._is_over:
            return start
        if self._control.is_frozen(start):
            self._finish(operator, {})
            self._control.acknowledge()
            return start
        batch = self._wait_for_batch(operator, limit, start)
        return start if batch is None else batch.to_json()

    def ranges(self, end: OffsetJson) -> dict[TopicPartition, Range]:
        """Return the ranges to read for the batch `end`: none, unless it is the open batch.

        Spark repeats a batch after a restart; the region already has its part of the output.
        """
        try:
            self._check()
        except _StoppedError:
            return {}
        batch, operator = Manifest.from_json(end), self._operator
        if operator is None or operator.work.open != batch:
            return {}
        return trim(batch.ranges, {})

    def report(self) -> OffsetJson:
        """Return the value that Spark shows as `sources[].latestOffset` in the query's progress."""
        operator = self._operator
        ends = {TopicPartition(each.topic, each.partition): end for each, end in self._ends.items()}
        return {
            "topics": by_topic(ends),
            "control": str(self._control.directory),
            "epoch": -1 if operator is None else operator.attempt,
            "region": self._greeting.region,
            "checkpoint": 0 if operator is None else operator.completed,
        }

    def stop(self) -> None:
        """Stop with a last checkpoint of the batches that were handed over."""
        self._end()
        self._control.close()

    def _wait_for_batch(
        self, operator: _Operator, limit: int | None, start: OffsetJson
    ) -> Manifest | None:
        ends_at = time.monotonic() + IDLE_WAIT_S
        empty_since, completed = time.monotonic(), operator.completed
        while True:
            self._check()
            self._ends = operator.ends(self._check)
            positions = operator.work.positions()
            targets = self._note_targets(positions)
            batch = operator.work.offer(targets, limit, operator.attempt)
            if batch is not None:
                return batch
            if self._targets is not None:
                if self._ends:
                    empty_since, completed = time.monotonic(), operator.completed
                has_all = all(positions.get(p, -1) >= targets.get(p, 0) for p in self._ends)
                empty_s = time.monotonic() - empty_since
                if has_all if self._ends else self._has_no_share(operator, empty_s, completed):
                    self._finish(operator, targets)
                    return None
            elif time.monotonic() > ends_at or self._control.is_frozen(start):
                return None
            time.sleep(_ENDS_S)

    def _has_no_share(self, operator: _Operator, empty_s: float, completed: int) -> bool:
        """Whether other operators read everything, so that this query has nothing to do.

        While the group waits for a killed member's session to expire, it assigns nothing either.

        Args:
            operator: The operator.
            empty_s: How long it has had no partitions, in seconds.
            completed: The last checkpoint when that began.
        """
        if empty_s < _SHARE_WAIT_S:
            return False
        if operator.completed > completed and operator.others_have_all():
            return True  # each owner has contributed since, so all are alive
        if empty_s < _SHARE_WAIT_S + operator.session_s:
            return False
        log.warning(
            "operator %s ends without a partition: its group %s has assigned it none for %d s, "
            "longer than a killed member stays in it",
            self._options.operator, self._options.group_id, empty_s,
        )  # fmt: skip
        return True

    def _note_targets(self, positions: Mapping[RegionPartition, int]) -> dict[RegionPartition, int]:
        """Return the offset at which to stop reading each partition."""
        if self._targets is None:
            return dict(self._ends)
        for partition, end in self._ends.items():
            if partition in positions:
                self._targets.setdefault(partition, end)
        return {each: end for each, end in self._targets.items() if each in self._ends}

    def _finish(self, operator: _Operator, wanted: Mapping[RegionPartition, int]) -> None:
        """Stop cleanly, and ensure that a checkpoint contains everything ever handed over.

        Args:
            operator: The operator.
            wanted: Offsets by partition that the checkpoint must also contain.

        Raises:
            RegionError: The checkpoint lacks some; the region reads the rest again.
        """
        self._is_over = True
        self._end()
        self._check()
        missing = {
            each
            for ends in (wanted, operator.work.handed_over())
            for each, end in ends.items()
            if not operator.has_checkpoint(each, end)
        }
        if missing:
            raise RegionError(
                f"operator {self._options.operator}: the last checkpoint does not hold all that "
                f"was read of {', '.join(map(str, sorted(missing)))}. Start the query again: the "
                "region continues after its last checkpoint"
            )

    def _end_query(self, start: OffsetJson) -> OffsetJson:
        """Let the query stop cleanly, because the region was asked to stop and has stopped.

        Raises:
            RegionError: Its last checkpoint does not contain everything that was handed over.
        """
        assert self._operator is not None
        self._finish(self._operator, {})
        log.warning(
            "operator %s: region %s was asked to stop, and has with a last checkpoint. Start the "
            "query again to continue", self._options.operator, self._greeting.region,
        )  # fmt: skip
        self._channel.end()
        return start

    def _check(self) -> None:
        operator = self._operator
        failure = self._failure or (None if operator is None else operator.error)
        if failure is not None:
            raise failure
        if operator is not None and operator.has_ended and not self._is_over:
            raise _StoppedError

    def _end(self) -> None:
        with self._closed:
            operator = self._operator
            if operator is not None:
                operator.close()
            self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_LEAVE_S)

    # ------------------------------------------------------------------------- the second thread

    def _serve(self) -> None:
        try:
            while not self._closing.is_set():
                if self._operator is None:
                    self._closing.wait(_LOOK_S)
                else:
                    self._operator.obey_next(_LOOK_S)
                for key, made in self._channel.handed():
                    self._channel.answer(key, counts=self._take_over(key, made))
                if os.getppid() != self._parent:
                    threading.Thread(target=self._orphaned, daemon=True).start()
                    self._parent = os.getppid()
        except Exception as error:  # noqa: BLE001  # whatever it is, the query must hear of it
            self._fail(error)

    def _take_over(self, key: str, made: HandOver) -> bool:
        operator = self._operator
        try:
            if operator is not None:
                return operator.error is None and operator.work.take_over(key, made)
            if not Channel.is_of(key, self._greeting):
                return False
            self._channel.withdraw(self._greeting)
            sink: SharedSink = pickle.loads(made.sink)  # noqa: S301  # the same user's, as its path
            return self._begin(sink, made.keeps_state)
        except Exception as error:  # noqa: BLE001  # whatever it is, the query must hear of it
            self._fail(error)
            return False

    def _begin(self, sink: SharedSink, keeps_state: bool) -> bool:
        """Create the operator, unless the query has ended since its first batch was handed over."""
        with self._closed:  # `stop` either waits for this or has been noticed
            if self._closing.is_set():
                return False
            self._operator = _Operator(
                self._options, self._incarnation, sink, self._channel, keeps_state
            )
        return True

    def _fail(self, error: Exception) -> None:
        self._control.report_not_drained(
            NotDrained(f"{type(error).__name__}: {error}", is_final=True)
        )
        if self._operator is None:
            self._failure = error
        else:
            self._operator.fail(error)

    def _orphaned(self) -> None:
        """Stop the process that Spark's JVM left behind, with a last checkpoint."""
        self._end()
        self._control.close()
        os._exit(0)


class _Operator:
    """The region's worker on its own event loop."""

    def __init__(
        self,
        options: SourceOptions,
        incarnation: str,
        sink: SharedSink,
        channel: Channel,
        keeps_state: bool,
    ) -> None:
        config = worker_config(options)
        self._worker = Worker(config, sink, incarnation=incarnation, fetches=False)
        self.work = SparkWork(
            config.region,
            self._worker.id,
            sink,
            self._worker.report,
            channel,
            keeps_state=keeps_state,
        )
        self.error: BaseException | None = None
        self.session_s = member_config(config.client, config.settings).session_timeout_ms / 1000
        self._patience_s = config.settings.drain_timeout_ms / 1000 + _LEAVE_S
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kohort-region-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._worker.run())
        except BaseException as error:  # noqa: BLE001  # the query raises it
            self.error = self.error or error

    @property
    def has_ended(self) -> bool:
        """Whether the worker has ended."""
        return not self._thread.is_alive()

    @property
    def attempt(self) -> int:
        """The region's attempt that the operator follows."""
        operating = self._worker.operating
        return 0 if operating is None else operating.machine.session.attempt

    @property
    def completed(self) -> int:
        """The region's last complete checkpoint."""
        state = self._worker.state
        return 0 if state is None else state.completed

    def others_have_all(self) -> bool:
        """Whether every partition known to the region is read by another operator."""
        state, me = self._worker.state, self._worker.id
        if state is None or not state.partitions:
            return False
        return all(
            known.owner not in (None, me) and known.base is not None
            for known in state.partitions.values()
        )

    def has_checkpoint(self, partition: RegionPartition, end: int) -> bool:
        """Whether everything before an offset is in a complete checkpoint."""
        state = self._worker.state
        base = None if state is None else state.partition(partition).base
        return base is not None and base >= end

    def ends(self, check: Callable[[], None]) -> Mapping[RegionPartition, int]:
        """Return the current ends of the operator's partitions.

        Args:
            check: Raises an error if the worker has ended.

        Raises:
            KafkaError: The brokers do not answer.
        """
        operating = self._worker.operating
        if operating is None:
            return {}
        request = operating.ends()
        try:
            return self._answer(request, check)
        finally:
            if self.error is not None:
                self._thread.join(_ENDS_S)
            if self.has_ended:
                request.close()  # the loop may have ended without starting it

    def _answer(
        self,
        request: Coroutine[object, object, Mapping[RegionPartition, int]],
        check: Callable[[], None],
    ) -> Mapping[RegionPartition, int]:
        try:
            asked = asyncio.run_coroutine_threadsafe(request, self._loop)
        except RuntimeError:  # the loop has already ended
            check()
            return {}
        while True:
            try:
                return asked.result(_ENDS_S)
            except TimeoutError:
                check()
            except CancelledError:  # the worker has ended, and with it the request
                self._thread.join(_ENDS_S)
                check()
                return {}

    def obey_next(self, timeout_s: float) -> None:
        """Carry out the region's next command, if it arrives in time."""
        command = self._worker.inbox.take(timeout_s)
        if self._worker.inbox.is_closed:
            time.sleep(timeout_s)
        try:
            if command is not None:
                self.work.obey(command)  # type: ignore[arg-type]  # it fetches no batches
        except Exception as error:  # noqa: BLE001  # as below
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop, and make the region reset: results handed over are lost."""
        self.error = self.error or error
        self._worker.report(error)

    def close(self) -> None:
        """Stop with a last checkpoint, if that completes in time."""
        self.work.void()
        with suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._worker.close)
        self._thread.join(self._patience_s)


def worker_config(options: SourceOptions) -> WorkerConfig:
    """Return the configuration of a query's operator."""
    from kohort.client.config.definitions import ConsumerConfig, from_kafka
    from kohort.spark.options.java_regex import java_pattern

    region, group_id = options.region, options.group_id
    assert region is not None
    assert group_id is not None
    client: dict[str, Any] = dict(from_kafka(ConsumerConfig, client_settings(options)))
    for name in ("client_id", "group_id", "enable_auto_commit"):
        client.pop(name, None)
    pattern: re.Pattern[str] | None = None
    if options.pattern is not None:
        pattern = java_pattern(options.pattern)
    return WorkerConfig(
        region=region.name,
        operator=options.operator,
        topics=options.topics,
        pattern=pattern,
        settings=region.settings(group_id),
        rebalance=region.rebalance,
        start=start_position(options.starting_timestamp, options.starting_offsets),
        replication_factor=region.replication_factor or -1,
        client=client,
    )
