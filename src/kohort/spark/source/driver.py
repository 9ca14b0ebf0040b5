"""The driver side of a streaming query: Spark's calls between batches."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from kohort.errors import LocalProtocolError
from kohort.spark.checkpoint.manifest import (
    Manifest,
    ManifestError,
    OffsetJson,
    Range,
    by_topic,
    trim,
)
from kohort.spark.completion.batch_done import Completion
from kohort.spark.completion.control import Control
from kohort.spark.completion.preconditions import Guard
from kohort.spark.completion.sinks import SinkError
from kohort.spark.environment import log_like_spark
from kohort.spark.options.checks import check_stream_options
from kohort.spark.options.source import SourceOptions
from kohort.spark.source.deadlock import LOOK_S, DeadlockCheck
from kohort.spark.source.exclusive import check_newcomer
from kohort.spark.source.limits import BatchDelay
from kohort.spark.source.lookup import ENDS_MAX_AGE_S, Lookup, client_settings
from kohort.spark.source.member import SourceMember
from kohort.spark.source.position_resolver import PositionResolver, TopicsChangedError
from kohort.spark.source.query_state import Progress
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.spark.checkpoint.log import CheckpointLog

log = logging.getLogger("kohort.spark")

# How long a trigger waits for a commit or a rebalance before it continues without it.
COMMIT_WAIT_S = 1.0
REBALANCE_WAIT_S = 1.0
FIRST_ASSIGNMENT_WAIT_S = 10.0
# Spark polls an idle query every 10 ms: the call returns when something changes, or after this
# time.
IDLE_WAIT_S = 0.2
# How often an idle query checks its topics.
IDLE_LOOK_S = 2.0


class QueryDriver:
    """One run of one streaming query; created in Spark's first call.

    Args:
        options: The query's options.

    Raises:
        OptionError: The options have no group.
        KafkaError: The brokers cannot be reached, or a topic does not exist.
    """

    def __init__(self, options: SourceOptions) -> None:
        from kohort.client.consumer.api import Consumer

        check_stream_options(options)
        self._options = options
        self._consumer = Consumer.from_config(client_settings(options))
        lookup = Lookup(options, self._consumer)
        self._resolver = PositionResolver(options, self._consumer, lookup)
        try:
            self._resolver.refresh()
        except BaseException:
            self._consumer.close(0)
            raise
        self._control = Control()
        self._deadlock = DeadlockCheck(self._control, options)
        self._completion = Completion(self._control, _checkpoint_log(options))
        self._progress = Progress(options.operator, uuid.uuid4().hex)
        self._progress.is_committing = options.group_mode != "none"
        self._progress.text = options.commit_metadata or ""
        self._guard = Guard(options, self._completion, self._resolver)
        self._member = SourceMember(
            self._consumer,
            lookup.subscription,
            self._progress,
            self._orphaned,
            self._completion,
            options.group_mode,
            lambda: self._guard.check(self._member),
        )
        self._last_read: tuple[OffsetJson | None, Manifest] = None, Manifest()
        self._offered: Manifest | None = None
        self._repeated: Manifest | None = None
        self._heard: Manifest | None = None
        self._reported_share: tuple[int, int] | None = None
        self._is_first = True
        self._idle_at = -math.inf
        self._is_started = False
        self._delay = BatchDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._ends: Mapping[TopicPartition, int] = {}
        self._reported_ends: Mapping[TopicPartition, int] = {}
        self._shown_ends: dict[str, dict[str, int]] = {}
        self._targets: dict[TopicPartition, int] | None = None
        stop_on_sigterm()
        log_like_spark()

    def _start(self, checkpoint: Manifest) -> None:
        """Join the group, now that the checkpoint is known.

        Raises:
            ExclusiveGroupError: This query or another one must be alone in the group.
            SinkError: The group has other members, and the state of the query's sink is unknown.
        """
        if self._is_started:
            return
        if checkpoint.nonce:
            self._progress.nonce = checkpoint.nonce
        self._resolver.learn(checkpoint)
        self._member.know(self._resolver.topics)
        if self._options.group_mode != "none":
            group = self._resolver.group()
            check_newcomer(self._options, group, self._progress.nonce, checkpoint)
            self._guard.check_start(checkpoint)
        if self._options.exclusive:
            self._member.be_exclusive()
        self._say_what_tells()
        self._is_started = True
        self._member.start()

    def _say_what_tells(self) -> None:
        """Warn at startup if the query must not share its group."""
        if self._completion.has_source or self._options.group_mode != "member":
            return
        log.info(
            "query %s cannot share group %s: its source cannot tell when a batch is finished, or "
            "whether its sink has it. Call kohort.spark.install(spark), or set the option "
            "checkpointLocation, before another query joins",
            self._options.operator,
            self._options.group_id,
        )

    def initial(self) -> OffsetJson:
        """Return the offset before the first batch; each batch contains its own start."""
        return Manifest(operator=self._options.operator, nonce=self._progress.nonce).to_json()

    def latest(self, start: OffsetJson, limit: int | None, *, waits: bool = False) -> OffsetJson:
        """Return the next batch, or `start` if there is nothing to read.

        Args:
            start: The last batch, now in the sink and in Spark's commit log.
            limit: Maximum number of records to read; None: unlimited.
            waits: Whether a batch waits for `minOffsetsPerTrigger` records.

        Raises:
            DataLossError: Records that the query must read are gone.
            ExclusiveGroupError: The query must be alone in its group but is not.
            GroupInUseError: Another source of the query is in the group, and they wait for each
                other.
            SinkError: The query's file sink has skipped `start`; or other members are in the group,
                and the state of the sink is unknown.
            MembershipLostError: Other members own partitions that `start` read.
            KafkaError: The member has failed for good.
        """
        last = self._manifest(start)
        self._start(last)
        self.finish(start)
        if self._control.is_frozen(start):
            if self._may_read():  # the member may have joined after Spark began to replay `start`
                with contextlib.suppress(TopicsChangedError):
                    self._look_at_topics()
                    self._resolver.place(self._member)
                self.finish(start)
            if self._member.has_committed_all():  # otherwise its thread reports this later
                self._control.acknowledge()
            return start
        try:
            # The previous check, a moment ago, found no records: do not repeat it.
            since_s = time.monotonic() - self._idle_at
            is_idle = self._targets is None and since_s < ENDS_MAX_AGE_S
            batch = None if is_idle else self._wait_for_batch(limit, waits=waits)
            if batch is None and self._targets is None and last.batch:
                self._member.rest(IDLE_WAIT_S)
                if not self._is_still_idle():
                    batch = self._wait_for_batch(limit, waits=waits)
                self._idle_at = time.monotonic() if batch is None else -math.inf
        except LocalProtocolError:  # the member's thread has closed the client
            self._member.check()
            raise
        if batch is None and not last.batch:
            firsts = self._firsts()
            batch = self._member.offer_start(firsts)  # Spark always runs a first batch
        if batch is None:
            return start
        self._delay.began(time.monotonic() * 1000)
        self._offered = batch
        if self._targets is not None and batch.reads(batch.ranges):
            self._deadlock.offered()
        return batch.to_json()

    def _is_still_idle(self) -> bool:
        """Whether all records are read; needs fewer requests than preparing a batch.

        Every `IDLE_LOOK_S` it also checks the topics: one may have grown or been recreated.
        """
        if self._resolver.age_s > IDLE_LOOK_S:
            return False
        try:
            ends = self._resolver.ends(self._member.owned())
        except TopicsChangedError:
            return False
        return bool(ends) and ends == self._member.positions()

    def _manifest(self, offset: OffsetJson) -> Manifest:
        """Parse an offset; Spark passes the same one to an idle query repeatedly."""
        if offset != self._last_read[0]:
            self._last_read = offset, _without_region(Manifest.from_json(offset))
        return self._last_read[1]

    def _wait_for_batch(self, limit: int | None, *, waits: bool) -> Manifest | None:
        is_patient = waits and self._targets is None
        while self._may_read():
            least = self._delay.least(time.monotonic() * 1000) if is_patient else 1
            batch = self._next_batch(limit, least)
            is_done = self._targets is None or not self._resolver.partitions()
            if batch is not None or is_done or self._has_all():
                return batch
        return None

    def _firsts(self) -> Mapping[TopicPartition, int]:
        try:
            return self._resolver.firsts(self._member)
        except TopicsChangedError:  # now a different topic, which is read from its first record
            return {}

    def _next_batch(self, limit: int | None, least: int) -> Manifest | None:
        while True:
            try:
                return self._look_for_batch(limit, least)
            except TopicsChangedError as error:
                log.info("retrying to prepare a batch: %s", error)

    def _look_for_batch(self, limit: int | None, least: int) -> Manifest | None:
        self._look_at_topics()
        self._resolver.place(self._member)
        ends = self._readable_ends()
        gone = self._resolver.check(self._member.positions(), self._ends)
        if gone:
            self._member.misplaced(gone)
            self._resolver.place(self._member)
        self._report_share(self._member.owned())
        self._guard.check_offer(self._member)
        return self._member.offer(ends, limit, least)

    def _look_at_topics(self) -> None:
        """Detect added partitions and recreated topics."""
        self._resolver.refresh()
        self._member.know(self._resolver.topics)
        remade = self._resolver.take_remade()
        if remade:
            known = self._member.owned() | self._member.finished().keys()
            self._member.misplaced(place for place in known if place.topic in remade)
        if self._options.group_mode != "member":
            self._member.own_all(self._resolver.partitions())

    def finish(self, batch: OffsetJson) -> None:
        """Mark `batch` as in the sink, and commit it to the group.

        Raises:
            ExclusiveGroupError: The query keeps state but is not alone in its group.
            SinkError: The query's file sink has skipped the batch; or other members are in the
                group, and the state of the sink is unknown.
            MembershipLostError: Other members own partitions that it read.
            KafkaError: The member has failed for good.
        """
        finished = self._manifest(batch)
        self._resolver.learn(finished)
        is_ours = finished == self._offered or (finished == self._repeated and finished.nonce)
        if is_ours and finished != self._heard:  # an idle query is polled repeatedly
            self._member.await_message(finished)
            self._heard = finished
        try:
            self._guard.check(self._member)
        except SinkError:
            if is_ours:  # Spark's checkpoint marks it as finished
                self._completion.end(finished)
            raise
        self._member.finish(finished, COMMIT_WAIT_S)

    def ranges(self, end: OffsetJson) -> dict[TopicPartition, Range]:
        """Return the ranges to read for the batch `end`.

        Spark replays a batch that this process has not offered; then only the part that the group
        has not committed is read.

        Raises:
            DataLossError: The batch reads a topic that was recreated.
        """
        batch = _without_region(Manifest.from_json(end))
        if batch == self._offered:
            self._deadlock.asked()
            return trim(batch.ranges, {})
        self._repeated = batch
        self._member.replay(batch)  # before its thread can report that no batch is open
        self._start(batch)
        return self._resolver.replayed(batch)

    def report(self) -> OffsetJson:
        """Return `sources[].latestOffset` of the query's progress."""
        if self._ends != self._reported_ends:  # an idle query is polled repeatedly
            self._reported_ends, self._shown_ends = self._ends, by_topic(self._ends)
        return {
            "topics": self._shown_ends,
            "control": str(self._control.directory),
            **self._member.report(),
        }

    def prepare_available_now(self) -> None:
        """Fix the query's end: the current end offsets of its partitions."""
        self._targets = {}

    def stop(self) -> None:
        """Commit finished batches and leave the group."""
        self._member.close()
        self._control.close()

    def _may_read(self) -> bool:
        """Wait a while for partitions; with `availableNow` the query waits for its whole share.

        Only the eager protocol gives a new member all its partitions at once. With the others it
        may own none at first: other members must revoke theirs, or the broker has not assigned them
        yet (KIP-1263).
        """
        if self._options.group_mode != "member" or not self._resolver.partitions():
            return True  # without a topic, ask the brokers for one
        if self._is_first:
            self._is_first = False
            if self._targets is not None:
                self._deadlock.check()  # the wait is measured from here
            self._member.own(FIRST_ASSIGNMENT_WAIT_S)
        if self._targets is None:
            return self._member.ready(REBALANCE_WAIT_S)
        return self._await_share(self._member.ready)

    def _await_share(self, wait: Callable[[float | None], bool]) -> bool:
        """Wait without a timeout, unless another source of the query waits for this one."""
        while not (is_there := wait(LOOK_S)) and not self._member.is_closing:
            self._deadlock.check()
        return is_there

    def _has_all(self) -> bool:
        """Return whether the share is complete; otherwise wait for more."""
        was_settled = self._member.settle(0)
        self._await_share(self._member.settle)
        _, unplaced = self._member.unplaced()
        return was_settled and unplaced.isdisjoint(self._resolver.partitions())

    def _readable_ends(self) -> Mapping[TopicPartition, int]:
        self._ends = self._resolver.ends(self._member.owned())
        if self._targets is None:
            return self._ends
        for partition, end in self._ends.items():
            self._targets.setdefault(partition, end)
        return {partition: self._targets[partition] for partition in self._ends}

    def _report_share(self, owned: frozenset[TopicPartition]) -> None:
        share = (len(owned), len(self._resolver.partitions()))
        if share == self._reported_share:
            return
        if share[0] < share[1]:
            log.warning(
                "query %s owns %d of %d partitions of %s; the others are not assigned yet, or "
                "other members of group %s have them",
                self._options.operator,
                *share,
                self._resolver.wanted,
                self._options.group_id,
            )
        self._reported_share = share

    def _orphaned(self) -> None:
        """End the process, orphaned by Spark's JVM, after the member has left the group."""
        self._control.close()
        os._exit(0)


def _without_region(batch: Manifest) -> Manifest:
    """Refuse a batch of a region: its entry in Spark's log contains no positions.

    Raises:
        ManifestError: The batch belongs to a region.
    """
    if batch.region:
        raise ManifestError(
            f"the checkpoint is from an operator of the consistent region {batch.region!r}, which "
            "holds the positions: set consistentRegion, or start with a new checkpointLocation"
        )
    return batch


def _checkpoint_log(options: SourceOptions) -> CheckpointLog | None:
    if options.checkpoint_location is None:
        return None
    from kohort.spark.checkpoint.log import CheckpointLog

    return CheckpointLog(options.checkpoint_location)


def stop_on_sigterm() -> None:
    """Make Spark's SIGTERM run `stop`, once.

    Spark sends SIGTERM twice, and the first one would kill Python before it left the group. The
    second must not interrupt the clean-up.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)
