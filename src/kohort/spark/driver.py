"""The driver-side half of a streaming query: what Spark asks between batches."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping
from types import FrameType

from kohort.spark.lookup import Lookup, client_settings
from kohort.spark.manifest import Manifest, OffsetJson, Range, trim
from kohort.spark.membership import Membership
from kohort.spark.options import SourceOptions, check_stream_options
from kohort.spark.progress import Progress
from kohort.spark.stopping import Control
from kohort.types import TopicPartition

log = logging.getLogger("kohort.spark")

# A trigger waits this long for a commit, and for a rebalance, before it goes on without.
COMMIT_WAIT_S = 1.0
REBALANCE_WAIT_S = 1.0
FIRST_ASSIGNMENT_WAIT_S = 10.0


class QueryDriver:
    """One run of one streaming query; made in the first call that Spark makes.

    Args:
        options: The query's options.

    Raises:
        OptionError: The options have no group.
        KafkaError: The brokers cannot be reached, or a topic does not exist.
    """

    def __init__(self, options: SourceOptions) -> None:
        from kohort.client.consumer import Consumer

        check_stream_options(options)
        self._options = options
        self._consumer = Consumer.from_config(client_settings(options))
        self._lookup = Lookup(options, self._consumer)
        try:
            self._partition_counts = self._lookup.partition_counts()
        except BaseException:
            self._consumer.close(0)
            raise
        self._control = Control()
        progress = Progress(options.operator)
        self._membership = Membership(self._consumer, options.topics, progress, self._orphaned)
        self._offered: Manifest | None = None
        self._reported_share: tuple[int, int] | None = None
        self._first = True
        self._ends: Mapping[TopicPartition, int] = {}
        self._targets: dict[TopicPartition, int] | None = None
        _stop_on_sigterm()
        _log_like_spark()
        self._membership.start()

    def initial(self) -> OffsetJson:
        """Return the offset before the first batch; each batch names its own start."""
        return Manifest(operator=self._options.operator).to_json()

    def latest(self, start: OffsetJson, limit: int | None) -> OffsetJson:
        """Return the next batch, or `start` when there is nothing to read.

        Args:
            start: The last batch, which is in the sink and in Spark's commit log by now.
            limit: Records to read at most, None for all.

        Raises:
            MembershipLostError: Others own partitions that `start` read.
            KafkaError: The member has failed for good.
        """
        self.finish(start)
        if self._control.frozen:
            self._control.acknowledge()
            return start
        while self._may_read():
            self._place_new()
            batch = self._membership.offer(self._readable_ends(), limit)
            if batch is not None:
                self._offered = batch
                return batch.to_json()
            if self._targets is None or self._has_all():
                return start
        return start

    def finish(self, batch: OffsetJson) -> None:
        """Take note that `batch` is in the sink, and commit it to the group.

        Raises:
            MembershipLostError: Others own partitions that it read.
            KafkaError: The member has failed for good.
        """
        self._membership.finish(Manifest.from_json(batch), COMMIT_WAIT_S)

    def ranges(self, end: OffsetJson) -> dict[TopicPartition, Range]:
        """Return what to read for the batch `end`.

        A batch that this process has not offered is one that Spark runs again; of such a one
        only the part is read that the group has not committed.
        """
        batch = Manifest.from_json(end)
        if batch == self._offered:
            return trim(batch.ranges, {})
        self._membership.replay(batch)
        left = trim(batch.ranges, {})
        return trim(left, self._lookup.committed(left))

    def report(self) -> OffsetJson:
        """Return what Spark shows as `sources[].latestOffset` in the query's progress."""
        ranges = {partition: (end, end) for partition, end in self._ends.items()}
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), (_, end) in sorted(ranges.items()):
            topics.setdefault(topic, {})[str(partition)] = end
        return {"topics": topics, "control": str(self._control.directory)}

    def prepare_available_now(self) -> None:
        """Fix where the query ends: at the present end of what it is given."""
        self._targets = {}

    def stop(self) -> None:
        """Commit what is finished and leave the group."""
        self._membership.close()
        self._control.close()

    def _may_read(self) -> bool:
        """Wait a while for partitions; a query that reads to the present end waits for its share.

        Only the eager protocol gives a newcomer all it gets at once. In the others it may have
        nothing at first: others have to give up, or the broker has yet to assign (KIP-1263).
        """
        if self._first:
            self._first = False
            self._membership.own(FIRST_ASSIGNMENT_WAIT_S)
        return self._membership.ready(REBALANCE_WAIT_S if self._targets is None else None)

    def _has_all(self) -> bool:
        """Whether nothing more is to come; when something is, wait for it."""
        was_settled = self._membership.settle(0)
        self._membership.settle(None)
        _, unplaced = self._membership.unplaced()
        return was_settled and not unplaced

    def _place_new(self) -> None:
        epoch, partitions = self._membership.unplaced()
        if partitions:
            committed = self._lookup.committed(partitions)
            initial = self._lookup.starting(partitions - committed.keys(), default="latest")
            self._lookup.check_present({**initial, **committed})
            self._membership.place(epoch, committed, initial)
        self._report_share(self._membership.owned())

    def _readable_ends(self) -> Mapping[TopicPartition, int]:
        self._ends = self._lookup.ends(self._membership.owned())
        if self._targets is None:
            return self._ends
        for partition, end in self._ends.items():
            self._targets.setdefault(partition, end)
        return {partition: self._targets[partition] for partition in self._ends}

    def _report_share(self, owned: frozenset[TopicPartition]) -> None:
        if len(owned) > sum(self._partition_counts.values()):
            self._partition_counts = self._lookup.partition_counts()
        share = (len(owned), sum(self._partition_counts.values()))
        if share == self._reported_share:
            return
        if share[0] < share[1]:
            log.warning(
                "query %s owns %d of %d partitions of %s, as other members share group %s",
                self._options.operator,
                *share,
                ", ".join(self._options.topics),
                self._options.group_id,
            )
        self._reported_share = share

    def _orphaned(self) -> None:
        """End the process that Spark's JVM left behind; the member has left the group."""
        self._control.close()
        os._exit(0)


def _stop_on_sigterm() -> None:
    """Make Spark's SIGTERM run `stop`, once.

    Spark ends the process with SIGTERM, twice, and Python would die of the first without leaving
    the group. The second must not interrupt the clean-up.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def _log_like_spark() -> None:
    """Give log lines Spark's look, as they end up in its log; other set-ups are left alone."""
    logger = logging.getLogger("kohort")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        handler.setFormatter(logging.Formatter(line, "%y/%m/%d %H:%M:%S"))
        logger.addHandler(handler)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)
