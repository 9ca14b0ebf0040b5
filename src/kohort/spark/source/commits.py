"""Commits a query's offsets to its group, and handles refused commits.

Transient refusals are retried. A permanent one stops the query: otherwise its checkpoint would
advance while the group's offsets did not, and another query of the group would read records again
or skip them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kohort.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    PartialFailureError,
    RebalanceInProgressError,
)
from kohort.spark.options.source import GroupMode
from kohort.spark.source.lookup import shown_partitions
from kohort.spark.source.query_state import GroupInUseError, present_offsets
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer.api import Consumer
    from kohort.spark.checkpoint.manifest import Manifest
    from kohort.spark.source.group_offsets import Note
    from kohort.spark.source.query_state import Progress

log = logging.getLogger("kohort.spark")

_IN_USE = (
    "the group has members now, and groupMode=commitOnly owns all partitions without joining: its "
    "commits are refused. Give the query a group of its own, or let it join with groupMode=member"
)
_TOO_LARGE = frozenset(
    {
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Outcome(Enum):
    """The outcome of a commit."""

    DONE = "stored"
    LATER = "refused for now; it is sent again at the next occasion"
    REBALANCE = "refused until the group has rebalanced"


class Commits:
    """Sends a query's commits and keeps the reason for a refusal.

    Args:
        consumer: The query's client.
        mode: Whether it is a member of the group (`groupMode`).

    Attributes:
        trouble: Why the last commit was refused; empty if it was accepted.
    """

    def __init__(self, consumer: Consumer, mode: GroupMode) -> None:
        self._consumer = consumer
        self._mode = mode
        self.trouble = ""
        self._refusal: KafkaError | None = None

    def refuse(
        self,
        batch: Manifest,
        progress: Progress,
        partitions: Collection[TopicPartition],
        *,
        is_out: bool,
    ) -> None:
        """Record in the group that a batch finished in Spark's checkpoint is not in the sink.

        Args:
            batch: The batch.
            progress: The query's positions.
            partitions: The query's partitions.
            is_out: Whether the query is not a member of the group.
        """
        places = [place for place in batch.ranges.keys() & partitions if batch.reads([place])]
        trouble = "the group has not let the query in since it started" if is_out else ""
        at_ms = int(time.time() * 1000)
        try:
            if places:
                found = self._consumer.committed(*places)
                noted = {each: progress.refused(each, batch, found, at_ms) for each in places}
                self._consumer.commit(noted)
        except KafkaError as error:
            trouble = str(error)
        if trouble:
            log.error(
                "the group cannot record that (%s): start the query with a new checkpoint, "
                "or it skips the records that are not in the sink",
                trouble,
            )

    def send(
        self, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, Note]
    ) -> Outcome:
        """Commit offsets.

        Args:
            offsets: The offsets to commit.
            notes: The metadata to commit with each offset.

        Raises:
            GroupInUseError: The group has members, and this query must be alone.
            KafkaError: The group refuses permanently; the message gives the remedy.
        """
        if self._refusal is not None:  # retried when the member leaves
            raise self._refusal
        wanted: Mapping[TopicPartition, OffsetAndMetadata] = {}
        try:
            found = self._consumer.topic_metadata({place.topic for place in offsets})
            ids = {name: str(each.topic_id) for name, each in found.items()}
            wanted = present_offsets(offsets, notes, ids)
            self._consumer.commit(wanted)
        except PartialFailureError as error:  # the rest stays pending
            return self._refused_in_part(wanted, error)
        except RebalanceInProgressError as error:
            log.info(
                "commit of %s waits for the group: %s", shown_partitions(sorted(offsets)), error
            )
            self.trouble = f"{type(error).__name__}: {error}"
            return Outcome.REBALANCE
        except KafkaError as error:
            return self._refused(wanted or offsets, wanted, error)
        self.trouble = ""
        return Outcome.DONE

    def _refused_in_part(
        self, wanted: Mapping[TopicPartition, OffsetAndMetadata], error: PartialFailureError
    ) -> Outcome:
        others = [each for each in error.errors.values() if each.code not in _GONE]
        if others:
            refused = {place: at for place, at in wanted.items() if place in error.errors}
            return self._refused(refused, wanted, max(others, key=is_lasting))
        log.warning("topics that the query read no longer exist: %s", error)
        self.trouble = ""
        return Outcome.DONE

    def _refused(
        self,
        places: Mapping[TopicPartition, object],
        wanted: Mapping[TopicPartition, OffsetAndMetadata],
        error: KafkaError,
    ) -> Outcome:
        if self._mode != "member" and isinstance(error, CommitFailedError):
            raise GroupInUseError(_IN_USE) from error
        if is_lasting(error):
            self._refusal = KafkaError(
                error.code,
                f"the group does not accept the commit of {shown_partitions(sorted(places))}, and "
                f"waiting does not help, so the query stops: {error.message}. "
                f"{_remedy(error.code, wanted)}",
            )
            raise self._refusal from error
        trouble = f"{type(error).__name__}: {error}"
        if trouble != self.trouble:
            shown = shown_partitions(sorted(places))
            log.warning("the commit of %s was refused and is retried: %s", shown, trouble)
        self.trouble = trouble
        return Outcome.LATER


def is_lasting(error: KafkaError) -> bool:
    """Whether the same commit will be refused again until something changes.

    A member that was removed from its group rejoins. An unknown error code may be transient.
    """
    is_known = error.code in set(ErrorCode) and error.code != ErrorCode.UNKNOWN_SERVER_ERROR
    return is_known and not error.retriable and not isinstance(error, CommitFailedError)


def _remedy(code: int, wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    size = max((len(each.metadata.encode()) for each in wanted.values()), default=0)
    if code == ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return (
            f"The note of a commit has {size} bytes: set offset.metadata.max.bytes of the brokers "
            f"(4096 by default) to {size + 64} or more, or shorten commitMetadata"
        )
    if code in _TOO_LARGE:
        return (
            "Raise max.message.bytes of the topic __consumer_offsets, or shorten commitMetadata "
            f"(the longest note has {size} bytes)"
        )
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return "Grant the query's user READ on the group"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return "Grant the query's user READ on the topics"
    return "Fix the cause, then restart the query with its checkpoint"
