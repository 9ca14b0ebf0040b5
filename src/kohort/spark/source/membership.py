"""The query's member of the consumer group, in a thread of the source's driver-side process.

Spark calls the source on the process's main thread, between long pauses; the group wants an
answer at any time. So the member lives in a thread of its own, and everything that both touch is
guarded by one condition variable.
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
from kohort.spark.completion.batch_done import Signs
from kohort.spark.completion.sinks import SinkError
from kohort.spark.options.source import GroupMode
from kohort.spark.source.committing import Commits, Outcome
from kohort.spark.source.lookup import shown_partitions
from kohort.spark.source.positions import Topic
from kohort.spark.source.query_state import Progress
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer.api import Consumer

log = logging.getLogger("kohort.spark")

# How often the thread looks after itself when nothing happens: the parent, a refused commit.
IDLE_MS = 100
# And where no batch is open, so that no word about one is awaited.
REST_MS = 500
LEAVE_TIMEOUT_S = 5.0
# A group refuses commits while it rebalances: a member that leaves then waits so long at most.
LAST_COMMIT_WAIT_S = 5.0
# A query that is stopped waits so long to hear that its last batch is over.
LAST_WORD_WAIT_S = 5.0
# A query does not begin before the group has its starts, or has refused them, in this time.
START_WAIT_S = 2.0


class Membership:
    """One member of one group, for one streaming query.

    Args:
        consumer: The member; only this class polls, commits with and closes it.
        topics: What to subscribe to: names, or a pattern of names.
        progress: Positions; read and changed only under this object's lock from now on.
        on_orphaned: Called once, in the member's thread after it has left the group, when the
            process that started this one is gone.
        signs: Tell that a batch is over before Spark's next trigger does.
        mode: Whether to join the group at all (`groupMode`).
        check: Raises when a finished batch must not be committed.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str] | re.Pattern[str],
        progress: Progress,
        on_orphaned: Callable[[], None],
        signs: Signs,
        mode: GroupMode = "member",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._signs = signs
        self._check = check
        self._refusal: KohortError | None = None
        # A refused batch that the group takes note of as soon as it has let the query in.
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
        # How long rebalances have waited for open batches, in all.
        self._rebalance_wait_s = 0.0
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
                self._wake()
                self._wait_for(lambda: not self._progress.to_commit(), timeout_s)
                self._raise_failure()
                self._progress.check()

    def has_committed_all(self) -> bool:
        """Whether the group knows of all finished batches."""
        with self._changed:
            return self._progress.is_committed

    def settle(self, timeout_s: float | None) -> bool:
        """Wait until the group neither wants nor gives partitions; return whether that is so.

        Args:
            timeout_s: Longest wait, None for as long as it takes.
        """
        return self._wait(lambda: self._settled, timeout_s)

    def ready(self, timeout_s: float | None) -> bool:
        """Wait until there may be something to read: a rebalance is over, or partitions stay.

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

    @property
    def nonce(self) -> str:
        """Names the checkpoint."""
        return self._progress.nonce

    def finished(self) -> dict[TopicPartition, int]:
        """Return ends of finished batches, of partitions without a position."""
        with self._changed:
            return dict(self._progress.finished)

    def positions(self) -> dict[TopicPartition, int]:
        """Return where the next batch starts."""
        with self._changed:
            return self._progress.positions

    def know(self, topics: Mapping[str, Topic]) -> None:
        """Note what the subscribed topics are, for manifests and commits."""
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
            KafkaError: The group does not accept them, so the query must not begin there.
        """
        with self._changed:
            self._progress.began = began
            self._progress.place(epoch, positions, committed, starts)
            if self._progress.to_commit():
                self._wake()
                self._wait_for(lambda: not self._progress.to_commit(), START_WAIT_S)
                self._raise_failure()

    def misplaced(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget positions whose records are gone."""
        with self._changed:
            self._progress.misplaced(partitions)

    def offer(
        self, ends: Mapping[TopicPartition, int], limit: int | None, least: int = 1
    ) -> Manifest | None:
        """Open the next batch if there is something to read in partitions that stay.

        Raises:
            MembershipLostError: Others have got what the last batch read.
        """
        with self._changed:
            self._progress.check()
            return None if self._signs.is_frozen else self._progress.offer(ends, limit, least)

    def offer_start(self, firsts: Mapping[TopicPartition, int]) -> Manifest | None:
        """Open a batch that says where the query starts, see `Progress.offer_start`."""
        with self._changed:
            self._progress.check()
            return None if self._signs.is_frozen else self._progress.offer_start(firsts)

    def report(self) -> dict[str, object]:
        """Return what people want to know of the member."""
        with self._changed:
            return {
                "member": self._member_id,
                "epoch": self._progress.epoch,
                "rebalanceWaitMs": round(self._rebalance_wait_s * 1000),
            }

    def rest(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for another assignment, as there is nothing to read."""
        with self._changed:
            if self._progress.has_positions and not self._closing:
                self._changed.wait(timeout_s)

    def check(self) -> None:
        """Raise what the member's thread has failed with, if it has.

        Raises:
            KohortError: The member has failed for good.
        """
        with self._changed:
            self._raise_failure()

    def own_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Own partitions without a group that gives them: for a query that does not join."""
        with self._changed:
            if not self._settled or self._progress.owned != frozenset(partitions):
                self._progress.assigned(partitions, -1)
                self._settled = self._may_note = True

    def hear(self, batch: Manifest) -> None:
        """Wait a while for the listener's word, which says whether `batch` may be committed."""
        while self._signs.is_to_come(batch):
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
        """Tell others, by the notes of all commits from now on, where the query's files go."""
        with self._changed:
            self._progress.sink = sink

    def be_exclusive(self) -> None:
        """Tell newcomers, by the notes of all commits from now on, that the query must be alone."""
        with self._changed:
            self._progress.is_exclusive = True

    def close(self) -> None:
        """Commit what is finished and leave the group.

        Spark may end the process before it asks for the next batch: the last batch is over when
        one of the signs says so in time, and is left to be read again otherwise.
        """
        if self._signs.can_tell:
            with self._changed:
                self._wait_for(lambda: not self._progress.has_open_batch, LAST_WORD_WAIT_S)
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
        """Give partitions back: after the open batch that reads them, and its commit."""
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
            self._look_for_signs()
        self._rebalance_wait_s += time.monotonic() - begun
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
            self._member_id = self._consumer.member_id
            self._settled = self._may_note = True
            self._changed.notify_all()

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that others own the partitions already."""
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
        except Exception as error:  # noqa: BLE001  # whatever it is, the query must hear of it
            self._signs.excuse(f"{type(error).__name__}: {error}", is_final=True)
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
            self._look_for_signs()
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
            # The client goes on trying, and Spark's thread fails with what it asks for.
            log.info("no broker can be reached: %s", error)

    def _look_for_signs(self) -> None:
        """Close the open batch if it is over: Spark may not say so before its next trigger."""
        with self._changed:
            batch = self._progress.open_batch
        if batch is None or self._refusal is not None or not self._signs.is_over(batch):
            return
        try:
            self._check()
        except KafkaError as error:
            log.info("whether batch %d may be committed cannot be asked: %s", batch.batch, error)
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
        """Answer an application that drains the query: the next trigger may be an hour away."""
        with self._changed:  # no batch is offered after the answer
            if (last := self._progress.drained) is not None:
                self._signs.let_drain(last)
            else:
                why = self._progress.undrained(self._commits.trouble)
                self._signs.excuse(why, is_final=self._progress.has_lost)

    def _refuse(self, batch: Manifest, why: KohortError) -> None:
        """Leave the group where `batch` begins, as it must not be committed.

        Spark's checkpoint says that the batch is over. If its records are not in the sink, a note
        in the group keeps the next run of the query from believing that.
        """
        log.error("batch %d is not committed to the group: %s", batch.batch, why)
        if isinstance(why, SinkError) and self._progress.is_committing:
            # What others have they read, from the group's offset on.
            ours = self.owned() if self._mode == "member" else batch.ranges.keys()
            self._commits.refuse(batch, self._progress, ours, is_out=not self._may_note)
        self._refusal, self._unnoted = why, None

    def _wake(self) -> None:
        if self._mode == "member":
            self._consumer.wakeup()
        self._changed.notify_all()

    def _commit(self) -> bool:
        """Commit finished batches; return False when the group refuses that for now."""
        with self._changed:
            offsets = self._progress.to_commit()
            now_ms = int(time.time() * 1000)
            notes = {place: self._progress.note(place, now_ms) for place in offsets}
        if not offsets:
            return True
        try:
            outcome = self._commits.send(offsets, notes)
        except KohortError as error:  # the loop of `_serve` ends with it
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
        """Commit before the member leaves; in a rebalance that waits until it has come through."""
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
        """Wait for `condition`, a failure or the end; the lock is held."""
        self._changed.wait_for(
            lambda: condition() or self._failure or self._refusal or self._closing, timeout_s
        )

    def _raise_failure(self) -> None:
        if (why := self._refusal or self._failure) is not None:
            raise why
