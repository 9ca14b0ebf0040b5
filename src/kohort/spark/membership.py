"""The query's member of the consumer group, in a thread of the source's driver-side process.

Spark calls the source on the process's main thread, between long pauses; the group wants an
answer at any time. So the member lives in a thread of its own, and everything that both touch is
guarded by one condition variable.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kohort.errors import BrokerUnavailableError, KafkaError, PartialFailureError
from kohort.spark.manifest import Manifest
from kohort.spark.progress import Progress
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer import Consumer

log = logging.getLogger("kohort.spark")

# How often the thread looks after itself when nothing happens: the parent, a refused commit.
IDLE_MS = 100
LEAVE_TIMEOUT_S = 5.0


class Membership:
    """One member of one group, for one streaming query.

    Args:
        consumer: The member; nobody else polls, commits with or closes it.
        topics: What to subscribe to.
        progress: Positions; read and changed only under this object's lock from now on.
        on_orphaned: Called once, in the member's thread after it has left the group, when the
            process that started this one is gone.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        progress: Progress,
        on_orphaned: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._progress = progress
        self._on_orphaned = on_orphaned
        self._parent = os.getppid()
        self._changed = threading.Condition()
        self._settled = False
        self._closing = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kohort-member", daemon=True)

    # ------------------------------------------------------------- called by Spark's main thread

    def start(self) -> None:
        """Join the group, in the background."""
        self._thread.start()

    def replay(self, batch: Manifest) -> None:
        """Note that Spark runs `batch` of an earlier run again."""
        with self._changed:
            self._progress.replay(batch)

    def finish(self, batch: Manifest, timeout_s: float) -> None:
        """Note that `batch` is in the sink, and wait a while for its commit to the group.

        Args:
            batch: The last finished batch.
            timeout_s: A commit that takes longer goes on in the background.

        Raises:
            MembershipLostError: Others owned its partitions before it was finished.
            KafkaError: The member has failed for good.
        """
        with self._changed:
            self._raise_failure()
            self._progress.boundary(batch)
            self._changed.notify_all()
            if self._settled and self._progress.to_commit():
                self._consumer.wakeup()
                self._wait_for(lambda: not self._progress.to_commit(), timeout_s)
                self._progress.check()

    def settle(self, timeout_s: float | None) -> bool:
        """Wait until the group neither wants nor gives partitions; return whether that is so.

        Args:
            timeout_s: Longest wait, None for as long as it takes.
        """
        return self._wait(lambda: self._settled, timeout_s)

    def ready(self, timeout_s: float | None) -> bool:
        """Wait until there may be something to read; return whether that is so.

        With the eager protocol that is the end of a rebalance. In the others the partitions that
        stay are read on, however long it takes to give up those that do not.

        Args:
            timeout_s: Longest wait, None for as long as it takes.
        """
        return self._wait(lambda: self._settled or bool(self._progress.staying), timeout_s)

    def own(self, timeout_s: float) -> bool:
        """Wait until the group has given this query a partition; return whether that is so.

        Args:
            timeout_s: Longest wait.
        """
        return self._wait(lambda: bool(self._progress.staying), timeout_s)

    def unplaced(self) -> tuple[int, frozenset[TopicPartition]]:
        """Return the generation and its partitions whose position must be looked up."""
        with self._changed:
            return self._progress.epoch, self._progress.unplaced

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that the group has given to this query."""
        with self._changed:
            return self._progress.owned

    def place(
        self,
        epoch: int,
        committed: Mapping[TopicPartition, int],
        initial: Mapping[TopicPartition, int],
    ) -> None:
        """Set positions of new partitions, see `Progress.place`."""
        with self._changed:
            self._progress.place(epoch, committed, initial)
            if self._progress.to_commit():
                self._consumer.wakeup()

    def offer(self, ends: Mapping[TopicPartition, int], limit: int | None) -> Manifest | None:
        """Open the next batch if there is something to read in partitions that stay.

        Raises:
            MembershipLostError: Others have got what the last batch read.
        """
        with self._changed:
            self._progress.check()
            return self._progress.offer(ends, limit)

    def close(self) -> None:
        """Commit what is finished and leave the group."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._consumer.wakeup()
        if self._thread.is_alive():
            self._thread.join(LEAVE_TIMEOUT_S + 2)

    # ------------------------------------------------------------------ called by the member

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions back: after the open batch that reads them, and its commit."""
        leaving = frozenset(partitions)
        with self._changed:
            self._settled = False
            self._progress.leaving(leaving)
            if not self._progress.may_leave(leaving):
                log.info("giving back %s after the open batch", _named(leaving))
            while not (self._progress.may_leave(leaving) or self._closing or self._is_orphan()):
                self._changed.wait(IDLE_MS / 1000)
        self._commit()
        with self._changed:
            # What could not be committed is the next owner's to read again: not an orderly end.
            if self._progress.to_commit().keys() & leaving:
                self._progress.lost(leaving)
            else:
                self._progress.revoked(leaving)
            self._changed.notify_all()

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions over."""
        with self._changed:
            self._progress.assigned(partitions, self._consumer.generation_id)
            self._settled = True
            self._changed.notify_all()

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that others own the partitions already."""
        with self._changed:
            self._settled = False
            self._progress.lost(partitions)
            self._changed.notify_all()

    # ------------------------------------------------------------------------ the member's thread

    def _run(self) -> None:
        try:
            try:
                self._serve()
            finally:
                self._consumer.close(LEAVE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001  # whatever it is, the query must hear of it
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        if self._is_orphan():
            self._on_orphaned()

    def _serve(self) -> None:
        self._consumer.subscribe(self._topics, listener=self)
        while not self._closing and not self._is_orphan():
            try:
                self._consumer.poll_membership(IDLE_MS)
            except BrokerUnavailableError as error:
                # The client goes on trying, and Spark's thread fails with what it asks for.
                log.info("no broker can be reached: %s", error)
            self._commit()
        self._commit()

    def _commit(self) -> None:
        """Commit finished batches; what the group refuses for now stays to be committed later."""
        with self._changed:
            offsets = self._progress.to_commit()
        if not offsets:
            return
        try:
            self._consumer.commit({tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()})
        except PartialFailureError as error:  # the rest is stored, and these never will be
            log.warning("topics that the query read do not exist any more: %s", error)
        except KafkaError as error:
            log.info("commit of %s refused: %s", offsets, error)
            return
        with self._changed:
            self._progress.committed(offsets)
            self._changed.notify_all()

    def _is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        with self._changed:
            self._wait_for(condition, timeout_s)
            self._raise_failure()
            return condition()

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait for `condition`, a failure or the end; the lock is held."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (condition() or self._failure or self._closing):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._changed.wait(left)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _named(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
