"""Learn that a batch is finished, before Spark's next trigger says so.

With a trigger interval of minutes, a finished batch would look open until the next trigger, and a
member whose partitions are revoked would block its whole group. A listener in the application
(`kohort.spark.install`) or the query's checkpoint reports it sooner.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.completion.control import NotDrained

if TYPE_CHECKING:
    from kohort.spark.checkpoint.log import CheckpointLog
    from kohort.spark.completion.control import Control

log = logging.getLogger("kohort.spark")

# How long after a batch to wait for the listener's message about it.
MESSAGE_WAIT_S = 20.0


class Completion:
    """Reports whether a batch is finished.

    Args:
        control: Holds the listener's messages, if there is a listener.
        log: The query's checkpoint, if its location is known.

    Attributes:
        needs_message: Whether commits must wait for the listener's message: for the first batch,
            and for each batch of a file sink, which may have skipped it.
        is_stateful: Whether the query keeps state, according to the listener.
        sink: Digest of the directory of the query's file sink; empty for every other sink.
        refusal: Why a batch must not be committed; empty if it may be.
        checkpoint: The query's checkpointLocation, according to the listener.
    """

    def __init__(self, control: Control, log: CheckpointLog | None = None) -> None:
        self._control = control
        self._log = log
        self._trouble = ""
        self._waiting: tuple[Manifest, float] | None = None
        self._is_silent = False
        self._ended: Manifest | None = None
        self.needs_message = control.has_listener
        self.is_stateful = False
        self.sink = ""
        self.refusal = ""
        self.checkpoint = ""

    @property
    def has_source(self) -> bool:
        """Whether anything reports a batch before the next trigger does."""
        return self._control.has_listener or self._log is not None or self._ended is not None

    @property
    def is_blind(self) -> bool:
        """Whether the state of the query's sink is unknown, so that it must not share its group."""
        is_heard = self._control.has_listener and not self._is_silent
        return self._log is None and not is_heard

    @property
    def is_frozen(self) -> bool:
        """Whether the source must offer no more batches."""
        return self._control.frozen

    def let_drain(self, last: Manifest) -> None:
        """Tell an application that is draining the query that no batch is open.

        Args:
            last: The last finished batch, which is committed.
        """
        if self._control.is_freezing and self._control.is_frozen(last.to_json()):
            self._control.acknowledge()

    def report_not_drained(self, why: str, *, is_final: bool = False) -> None:
        """Tell an application that is draining the query why the drain is not done.

        Args:
            why: The reason.
            is_final: Whether waiting will not help.
        """
        if self._control.frozen or is_final:
            self._control.report_not_drained(NotDrained(why, is_final))

    def end(self, batch: Manifest) -> None:
        """Record that Spark has finished a batch that must not be committed to the group."""
        self._ended = batch

    def is_done(self, batch: Manifest) -> bool:
        """Whether Spark has finished the batch, and no more messages about it are expected."""
        if batch == self._ended:
            return True
        return self._is_reported(batch) or (self._is_logged(batch) and not self.is_pending(batch))

    def is_pending(self, batch: Manifest) -> bool:
        """Whether to keep waiting for the listener's message about a finished batch."""
        if self._is_reported(batch) or not (self.needs_message and self._control.has_listener):
            return False
        if self._waiting is None or self._waiting[0] != batch:
            self._waiting = (batch, time.monotonic())
        if time.monotonic() - self._waiting[1] < MESSAGE_WAIT_S:
            return True
        self.needs_message, self._is_silent = False, True
        log.warning(
            "the listener of kohort.spark.install has not reported batch %d for %.0f s, so it "
            "is unknown whether a file sink has skipped it or the query keeps state. It is "
            "committed, unless the query shares its group. Call install(spark) with the session "
            "that starts the query",
            batch.batch,
            MESSAGE_WAIT_S,
        )
        return False

    def _is_reported(self, batch: Manifest) -> bool:
        refused = self._control.refused(batch.nonce)
        if refused is not None:
            self.refusal, self.checkpoint = refused.refusal, refused.checkpoint
        done = self._control.done_of(batch.to_json())
        if done is None:
            return False
        self._is_silent = False
        self.checkpoint = self.checkpoint or done.checkpoint
        self.needs_message = bool(done.sink)
        self.is_stateful = self.is_stateful or done.is_stateful
        self.sink, self.refusal = done.sink, self.refusal or done.refusal
        return True

    def _is_logged(self, batch: Manifest) -> bool:
        from kohort.spark.checkpoint.log import CheckpointError

        if self._log is None:
            return False
        try:
            return self._log.is_finished(batch.to_json())
        except CheckpointError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("%s. So Spark's next trigger shows that a batch is finished", error)
            return False
