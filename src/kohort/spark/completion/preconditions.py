"""Decides whether a batch that Spark has finished may be committed to the group.

Two kinds of queries fail silently: one whose file sink skips batches, and one that keeps state
while another member reads a part of its keys. Both are detected after a batch and before its
commit, from the messages of the listener of `kohort.spark.install`. Without a listener, a query
must not share its group.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from kohort.spark.completion.sinks import SinkError, note_refusal, noted_refusal
from kohort.spark.options.source import SourceOptions
from kohort.spark.source.exclusive import (
    LOOK_EVERY_S,
    ExclusiveGroupError,
    check_no_members,
    check_no_others,
    check_owner,
)
from kohort.spark.source.group_offsets import Note, foreign_notes, sink_notes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kohort.spark.checkpoint.manifest import Manifest
    from kohort.spark.completion.batch_done import Completion
    from kohort.spark.source.member import SourceMember
    from kohort.spark.source.position_resolver import PositionResolver
    from kohort.types import TopicPartition

log = logging.getLogger("kohort.spark")


class Guard:
    """Refuses commits that must not happen; called from Spark's thread and the member's thread.

    Args:
        options: The query's options.
        completion: The listener's messages.
        resolver: Has the topics and the group's committed offsets.
    """

    def __init__(
        self, options: SourceOptions, completion: Completion, resolver: PositionResolver
    ) -> None:
        self._options = options
        self._completion = completion
        self._resolver = resolver
        self._began_ms = int(time.time() * 1000)
        self._lock = threading.Lock()
        self._has_looked = False
        self._look_due = 0.0
        self._former: Mapping[TopicPartition, Note] | None = None
        self._refused: SinkError | ExclusiveGroupError | None = None

    def check_start(self, checkpoint: Manifest) -> None:
        """Check that the query may join its group.

        Args:
            checkpoint: Where the query's last batch ended; empty for a new query.

        Raises:
            SinkError: The group has members, and the state of the query's sink is unknown.
            KafkaError: The brokers do not answer.
        """
        if self._is_blind:
            check_no_members(self._options, is_restart=checkpoint.batch > 0)

    def check_offer(self, member: SourceMember) -> None:
        """Check that the query may begin a batch.

        Args:
            member: The query's member.

        Raises:
            SinkError: Other members have joined, and the state of the query's sink is unknown.
            KafkaError: The brokers do not answer.
        """
        has_all = member.has_all(self._resolver.partitions())
        if not has_all and self._is_blind:
            self._check_others(member)

    @property
    def _is_blind(self) -> bool:
        return self._options.group_mode == "member" and self._completion.is_blind

    def _check_others(self, member: SourceMember) -> None:
        check_no_others(self._options, str(member.report()["member"]))

    def _shares(self, member: SourceMember) -> bool:
        """Whether other members own some of the partitions."""
        return member.has_all(self._resolver.partitions()) is False

    def check(self, member: SourceMember) -> None:
        """Check that finished batches may be committed; a refusal is permanent.

        Args:
            member: The query's member.

        Raises:
            SinkError: The sink has skipped a batch, or another member also writes to it; or there
                are other members, and the state of the sink is unknown.
            ExclusiveGroupError: The query must be alone in its group but is not.
            KafkaError: The brokers do not answer; try again.
        """
        with self._lock:
            if self._refused is None:
                try:
                    self._check_sink(member)
                    self._check_alone(member)
                    self._check_only(member)
                except (SinkError, ExclusiveGroupError) as error:
                    self._refused = error
            if self._refused is not None:
                raise self._refused

    def _check_sink(self, member: SourceMember) -> None:
        sink = self._completion.sink
        if self._options.group_mode == "none":
            self._check_checkpoint()
        if self._completion.refusal:
            raise SinkError(self._completion.refusal)
        if self._shares(member) and self._is_blind:
            self._check_others(member)
        if not sink or self._options.group_mode != "member":
            return
        member.write_to(sink)
        if not self._shares(member):
            return
        others = sink_notes(self._resolver.group(), member.nonce, sink, self._began_ms)
        if others:
            raise SinkError(
                f"query {', '.join(others)}, also a member of group {self._options.group_id}, "
                "writes to the directory of this query's file sink: each of them skips batches "
                "whose numbers the other has written. Give each query a directory of its own, or "
                "let them share a table with DeltaAppend"
            )

    def _check_checkpoint(self) -> None:
        """Without a group, store a refusal in the checkpoint, which marks the batch as finished."""
        checkpoint, refusal = self._completion.checkpoint, self._completion.refusal
        if not checkpoint or (self._has_looked and not refusal):
            return
        self._has_looked = True
        try:
            earlier = noted_refusal(checkpoint)
            if refusal and not earlier:
                note_refusal(checkpoint, refusal)
        except (OSError, ValueError) as error:
            log.error(
                "%s: no note of a refused batch can be kept in this checkpoint (%s)%s",
                checkpoint,
                error,
                ": start the query with a new one, or it skips the batch" * bool(refusal),
            )
        else:
            if earlier:
                raise SinkError(earlier)

    def _check_only(self, member: SourceMember) -> None:
        """Detect another query that commits to the group: each would skip the other's records."""
        now = time.monotonic()
        if self._options.group_mode != "commitOnly" or now < self._look_due:
            return
        self._look_due = now + LOOK_EVERY_S
        found = foreign_notes(self._resolver.group(), member.nonce)
        if self._former is None:  # of earlier queries, perhaps with this one's lost checkpoint
            self._former = found
        news = {place: note for place, note in found.items() if note != self._former.get(place)}
        if news:
            names = ", ".join(sorted({note.operator for note in news.values()}))
            raise ExclusiveGroupError(
                f"query {names}, with another checkpoint, commits to group "
                f"{self._options.group_id} too, and groupMode=commitOnly reads everything alone: "
                "each skips what the other has read. Give each query a group of its own"
            )

    def _check_alone(self, member: SourceMember) -> None:
        if self._options.group_mode != "member":
            return
        if self._completion.is_stateful and not member.is_exclusive:
            check_owner(self._options, "the query keeps state, which does not move with partitions")
            member.be_exclusive()
        elif member.is_exclusive and self._shares(member):
            check_owner(self._options, "exclusive is true or the query keeps state")
