"""The query's member of the consumer group, in a thread of the source's driver-side process.

Spark calls the source on the process's main thread, with long pauses in between, while the group
needs responses at any time. So the member runs in its own thread, and one condition variable guards
all shared state.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kohort.errors import BrokerUnavailableError, KafkaError, KohortError
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.completion.batch_done import Completion
from kohort.spark.completion.sinks import SinkError
from kohort.spark.options.source import GroupMode
from kohort.spark.source.commits import Commits, Outcome
from kohort.spark.source.group_offsets import Topic
from kohort.spark.source.lookup import shown_partitions
from kohort.spark.source.query_state import Progress
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer.api import Consumer

log = logging.getLogger("kohort.spark")

# How often an idle thread checks its parent process and retries a refused commit.
IDLE_MS = 100
# The same interval while no batch is open.
REST_MS = 500
LEAVE_TIMEOUT_S = 5.0
# A group refuses commits while it rebalances: how long a leaving member then waits.
LAST_COMMIT_WAIT_S = 5.0
# How long a stopped query waits for a message that its last batch is finished.
LAST_MESSAGE_WAIT_S = 5.0
# How long a query waits at startup until the group has accepted or refused its start offsets.
START_WAIT_S = 2.0


class SourceMember:
    """One member of one group, for one streaming query.

    Args:
        consumer: The member; only this class polls, commits with and closes it.
        topics: The subscription: names, or a pattern of names.
        progress: The positions; from now on accessed only under this object's lock.
        on_orphaned: Called once when the parent process is gone, in the member's thread, after the
            member has left the group.
        completion: Reports a finished batch before Spark's next trigger does.
        mode: Whether to join the group at all (`groupMode`).
        check: Raises an error if a finished batch must not be committed.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str] | re.Pattern[str],
        progress: Progress,
        on_orphaned: Callable[[], None],
        completion: Completion,
        mode: GroupMode = "member",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._completion = completion
        self._check = check
        self._refusal: KohortError | None = None
        # A refused batch, to be recorded in the group as soon as the query has joined.
        self._unnoted: tuple[Manifest, SinkError] | None = None
        self._may_note = mode != "member"
        self._mode = mode
        self._consumer = consumer
        self._topics = topics
        self._progress = progress
        self._on_orphaned = on_orphaned
        self._parent = os.getppid()
        self._changed = threading.Condition()
        self._settled = False
        self._closing = False
        self._failure: BaseException | None = None
        self._member_id = ""
        self._commits = Commits(consumer, mode)
        # Total time that rebalances have waited for open batches.
        self._rebalance_wait_s = 0.0
        self._thread = threading.Thread(target=self._run, name="kohort-member", daemon=True)

    # ------------------------------------------------------------- called by Spark's main thread

    def start(self) -> None:
        """Join the group, in the background."""
        self._thread.start()

    def replay(self, batch: Manifest) -> None:
        """Record that Spark replays `batch` of an earlier run."""
        with self._changed:
            self._progress.replay(batch)

    def finish(self, batch: Manifest, timeout_s: float) -> None:
        """Mark `batch` as in the sink, and wait a while for its commit to the group.

        Args:
            batch: The last finished batch.
            timeout_s: Timeout in seconds; a slower commit continues in the background.

        Raises:
            MembershipLostError: Other members owned its partitions before it was finished.
            KafkaError: The member has failed for good.
        """
        with self._changed:
            self._raise_failure()
            self._progress.boundary(batch)
            self._changed.notify_all()
            if self._settled and self._progress.to_commit():
                self._wake()
                self._wait_for(lambda: not self._progress.to_commit(), timeout_s)
                self._raise_failure()
                self._progress.check()

    def has_committed_all(self) -> bool:
        """Whether all finished batches are committed to the group."""
        with self._changed:
            return self._progress.is_committed

    def settle(self, timeout_s: float | None) -> bool:
        """Wait until no rebalance is in progress; return False on a timeout.

        Args:
            timeout_s: Timeout in seconds; None: no timeout.
        """
        return self._wait(lambda: self._settled, timeout_s)

    def ready(self, timeout_s: float | None) -> bool:
        """Wait until there may be records to read: a rebalance is over, or partitions stay.

        Args:
            timeout_s: Timeout in seconds; None: no timeout.
        """
        return self._wait(lambda: self._settled or bool(self._progress.staying), timeout_s)

    def own(self, timeout_s: float) -> bool:
        """Wait until the query owns a partition; return False on a timeout.

        Args:
            timeout_s: Timeout in seconds.
        """
        return self._wait(lambda: bool(self._progress.staying), timeout_s)

    def unplaced(self) -> tuple[int, frozenset[TopicPartition]]:
        """Return the generation and the partitions whose positions must be looked up."""
        with self._changed:
            return self._progress.epoch, self._progress.unplaced

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that the group has assigned to this query."""
        with self._changed:
            return self._progress.owned

    @property
    def nonce(self) -> str:
        """Identifies the checkpoint."""
        return self._progress.nonce

    def finished(self) -> dict[TopicPartition, int]:
        """Return the ends of finished batches for partitions without a position."""
        with self._changed:
            return dict(self._progress.finished)

    def positions(self) -> dict[TopicPartition, int]:
        """Return where the next batch starts."""
        with self._changed:
            return self._progress.positions

    def know(self, topics: Mapping[str, Topic]) -> None:
        """Store the subscribed topics, for manifests and commits."""
        with self._changed:
            self._progress.topics = dict(topics)

    def place(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
        starts: Iterable[TopicPartition],
        began: int,
    ) -> None:
        """Set positions of new partitions, see `Progress.place`; wait a while for their commit.

        Raises:
            KafkaError: The group refuses them, so the query must not start there.
        """
        with self._changed:
            self._progress.began = began
            self._progress.place(epoch, positions, committed, starts)
            if self._progress.to_commit():
                self._wake()
                self._wait_for(lambda: not self._progress.to_commit(), START_WAIT_S)
                self._raise_failure()

    def misplaced(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard positions whose records are gone."""
        with self._changed:
            self._progress.misplaced(partitions)

    def offer(
        self, ends: Mapping[TopicPartition, int], limit: int | None, least: int = 1
    ) -> Manifest | None:
        """Open the next batch if partitions that stay have records to read.

        Raises:
            MembershipLostError: Other members own partitions that the last batch read.
        """
        with self._changed:
            self._progress.check()
            return None if self._completion.is_frozen else self._progress.offer(ends, limit, least)

    def offer_start(self, firsts: Mapping[TopicPartition, int]) -> Manifest | None:
        """Open a batch that records where the query starts, see `Progress.offer_start`."""
        with self._changed:
            self._progress.check()
            return None if self._completion.is_frozen else self._progress.offer_start(firsts)

    def report(self) -> dict[str, object]:
        """Return a status report of the member."""
        with self._changed:
            return {
                "member": self._member_id,
                "epoch": self._progress.epoch,
                "rebalanceWaitMs": round(self._rebalance_wait_s * 1000),
            }

    def rest(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for a new assignment; there is nothing to read now."""
        with self._changed:
            if self._progress.has_positions and not self._closing:
                self._changed.wait(timeout_s)

    def check(self) -> None:
        """Raise the error of the member's thread, if it failed.

        Raises:
            KohortError: The member has failed for good.
        """
        with self._changed:
            self._raise_failure()

    def own_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Own partitions without joining the group."""
        with self._changed:
            if not self._settled or self._progress.owned != frozenset(partitions):
                self._progress.assigned(partitions, -1)
                self._settled = self._may_note = True

    def await_message(self, batch: Manifest) -> None:
        """Wait a while for the listener's message whether `batch` may be committed."""
        while self._completion.is_pending(batch):
            with self._changed:
                self._changed.wait(IDLE_MS / 1000)

    def has_all(self, partitions: frozenset[TopicPartition]) -> bool | None:
        """Whether the query owns all of the partitions; None while the group rebalances."""
        with self._changed:
            return partitions <= self._progress.owned if self._settled else None

    @property
    def is_closing(self) -> bool:
        """Whether the member is leaving the group."""
        return self._closing

    @property
    def is_exclusive(self) -> bool:
        """Whether the query must be alone in its group."""
        return self._progress.is_exclusive

    def write_to(self, sink: str) -> None:
        """Publish the file sink's directory, in the notes of all commits from now on."""
        with self._changed:
            self._progress.sink = sink

    def be_exclusive(self) -> None:
        """Publish that the query must be alone, in the notes of all commits from now on."""
        with self._changed:
            self._progress.is_exclusive = True

    def close(self) -> None:
        """Commit finished batches and leave the group.

        Spark may end the process before it asks for the next batch: the last batch is committed if
        a message reports its end in time, and is read again otherwise.
        """
        if self._completion.has_source:
            with self._changed:
                self._wait_for(lambda: not self._progress.has_open_batch, LAST_MESSAGE_WAIT_S)
                if self._unnoted is not None:
                    self._wait_for(lambda: False, LAST_COMMIT_WAIT_S)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._wake()
        if self._thread.is_alive():
            self._thread.join(LAST_COMMIT_WAIT_S + LEAVE_TIMEOUT_S + 2)
        elif self._thread.ident is None:  # it was refused before it joined
            self._consumer.close(0)

    # ------------------------------------------------------------------ called by the member

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions back after the open batch that reads them, and its commit."""
        leaving = frozenset(partitions)
        with self._changed:
            self._settled = False
            self._progress.leaving(leaving)
            if not self._progress.may_leave(leaving):
                log.info("giving back %s after the open batch", shown_partitions(sorted(leaving)))
        begun = time.monotonic()
        while not (self._closing or self._is_orphan()):
            with self._changed:
                if self._refusal is not None or self._progress.may_leave(leaving):
                    break
                self._changed.wait(IDLE_MS / 1000)
            self._check_completion()
        self._rebalance_wait_s += time.monotonic() - begun
        self._commit()
        with self._changed:
            # The next owner reads uncommitted records again: this is not an orderly hand-over.
            if self._progress.to_commit().keys() & leaving:
                self._progress.lost(leaving)
            else:
                self._progress.revoked(leaving)
            self._changed.notify_all()

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions over."""
        with self._changed:
            self._progress.assigned(partitions, self._consumer.generation_id)
            self._member_id = self._consumer.member_id
            self._settled = self._may_note = True
            self._changed.notify_all()

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that other members already own the partitions."""
        with self._changed:
            self._settled = False
            self._progress.lost(partitions, self._consumer.why_out)
            self._changed.notify_all()

    # ------------------------------------------------------------------------ the member's thread

    def _run(self) -> None:
        try:
            try:
                self._serve()
            finally:
                self._consumer.close(LEAVE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001  # the query must learn of any error
            self._completion.report_not_drained(f"{type(error).__name__}: {error}", is_final=True)
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        if self._is_orphan():
            self._on_orphaned()

    def _serve(self) -> None:
        if self._mode == "member":
            self._subscribe()
        while not self._closing and not self._is_orphan():
            self._pause()
            self._check_completion()
            self._commit()
            self._let_drain()
            if self._refusal is not None:
                raise self._refusal
        self._commit_last()
        if self._unnoted is not None:
            self._refuse(*self._unnoted)

    def _subscribe(self) -> None:
        if isinstance(self._topics, re.Pattern):
            self._consumer.subscribe(pattern=self._topics, listener=self)
        else:
            self._consumer.subscribe(self._topics, listener=self)

    def _pause(self) -> None:
        if self._mode != "member":
            with self._changed:
                self._changed.wait(IDLE_MS / 1000)
            return
        try:
            self._consumer.poll_membership(IDLE_MS if self._progress.has_open_batch else REST_MS)
        except BrokerUnavailableError as error:
            # The client keeps trying, and Spark's thread fails with its own requests.
            log.info("no broker can be reached: %s", error)

    def _check_completion(self) -> None:
        """Close the open batch if finished; Spark may not report it before its next trigger."""
        with self._changed:
            batch = self._progress.open_batch
        if batch is None or self._refusal is not None or not self._completion.is_done(batch):
            return
        try:
            self._check()
        except KafkaError as error:
            log.info("cannot find out whether batch %d may be committed: %s", batch.batch, error)
            return
        except KohortError as error:
            if isinstance(error, SinkError) and not self._may_note:
                self._unnoted = (batch, error)
            else:
                self._refuse(batch, error)
            return
        with self._changed:
            if self._progress.is_open(batch):
                self._progress.finish(batch)
                self._changed.notify_all()

    def _let_drain(self) -> None:
        """Answer an application that drains the query; the next trigger may be an hour away."""
        with self._changed:  # no batch is offered after the answer
            if (last := self._progress.drained) is not None:
                self._completion.let_drain(last)
            else:
                why = self._progress.undrained(self._commits.trouble)
                self._completion.report_not_drained(why, is_final=self._progress.has_lost)

    def _refuse(self, batch: Manifest, why: KohortError) -> None:
        """Leave the group's offsets at the start of `batch`, which must not be committed.

        Spark's checkpoint marks the batch as finished. If its records are not in the sink, a note
        in the group tells the next run of the query not to trust the checkpoint.
        """
        log.error("batch %d is not committed to the group: %s", batch.batch, why)
        if isinstance(why, SinkError) and self._progress.is_committing:
            # Other members read their own partitions, from the group's committed offset.
            ours = self.owned() if self._mode == "member" else batch.ranges.keys()
            self._commits.refuse(batch, self._progress, ours, is_out=not self._may_note)
        self._refusal, self._unnoted = why, None

    def _wake(self) -> None:
        if self._mode == "member":
            self._consumer.wakeup()
        self._changed.notify_all()

    def _commit(self) -> bool:
        """Commit finished batches; return False if the group refuses the commit for now."""
        with self._changed:
            offsets = self._progress.to_commit()
            now_ms = int(time.time() * 1000)
            notes = {place: self._progress.note(place, now_ms) for place in offsets}
        if not offsets:
            return True
        try:
            outcome = self._commits.send(offsets, notes)
        except KohortError as error:  # this ends the loop of `_serve`
            self._give_up(error)
            return True
        if outcome is not Outcome.DONE:
            return outcome is Outcome.LATER
        with self._changed:
            self._progress.committed(offsets)
            self._changed.notify_all()
        return True

    def _give_up(self, error: KohortError) -> None:
        with self._changed:
            if self._refusal is None:
                log.error("%s: %s", type(error).__name__, error)
                self._refusal = error
            self._changed.notify_all()

    def _commit_last(self) -> None:
        """Commit before the member leaves; during a rebalance, retry for a while."""
        deadline = time.monotonic() + LAST_COMMIT_WAIT_S
        while not self._commit() and time.monotonic() < deadline and not self._is_orphan():
            self._pause()

    def _is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        with self._changed:
            self._wait_for(condition, timeout_s)
            self._raise_failure()
            return condition()

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait for `condition`, a failure or the end; the caller holds the lock."""
        self._changed.wait_for(
            lambda: condition() or self._failure or self._refusal or self._closing, timeout_s
        )

    def _raise_failure(self) -> None:
        if (why := self._refusal or self._failure) is not None:
            raise why
