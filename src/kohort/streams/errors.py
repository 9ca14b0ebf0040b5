"""The errors of stream applications."""

from __future__ import annotations

from kohort.errors import ConfigError, KohortError
from kohort.types import TopicPartition


class StreamsError(KohortError):
    """Base class of the errors of stream applications."""


class BuildError(StreamsError, ConfigError):
    """A program is invalid; the message names the step and the remedy."""


class NotCoPartitionedError(StreamsError):
    """Topics that are read together have different numbers of partitions."""


class MissingTopicError(StreamsError):
    """A topic that the application reads, or one of its internal topics, does not exist."""


class InternalTopicError(StreamsError):
    """An internal topic of the application has unsuitable settings."""


class ChangelogTruncatedError(StreamsError):
    """A changelog has lost records that state depends on."""


class InputChangedError(StreamsError):
    """An input topic was deleted, recreated, or truncated while it was read."""


class ControlRecordError(StreamsError):
    """Bytes in the control topic are not a record of this package."""


class TaskFailedError(StreamsError):
    """Tasks failed; their records since the last commit are not committed."""


class StreamsFencedError(StreamsError):
    """The group removed this instance; others have its tasks."""


class DifferentProgramError(StreamsError):
    """A member of the application runs a different program."""


class NotRunningError(StreamsError):
    """No instance of the application runs in this process."""


class NoSuchStoreError(StreamsError):
    """The program has no store with this name."""


class KeyElsewhereError(StreamsError, KeyError):
    """This instance does not process the task to which a key belongs.

    Attributes:
        task: The task, as `sub-topology_partition`.
        member: Member id of its owner, as far as this instance knows; empty: unknown.
        url: Where its owner answers queries over HTTP; empty: nowhere, or unknown.
    """

    def __init__(self, store: str, task: str, member: str, url: str = "") -> None:
        """Create the error for a key of a task."""
        self.store = store
        self.task = task
        self.member = member
        self.url = url
        super().__init__(store, task, member, url)

    def __str__(self) -> str:
        """Return the location of the key."""
        where = f"its owner is {self.member}" if self.member else "its owner is unknown"
        if self.url:
            where += f", at {self.url}"
        return (
            f"store {self.store}: the key belongs to task {self.task}, which this instance does not"
            f" process now; {where}"
        )


class StateError(StreamsError):
    """The state on disk cannot be used; the subclass gives the reason."""


class StateInUseError(StateError):
    """Another process, or another task of this process, uses the directory."""


class ForeignStateError(StateError):
    """The directory belongs to another application or another task."""


class NewerStateError(StateError):
    """The directory was written by a newer version of kohort."""


class StateDiskFullError(StateError):
    """The disk that holds the state is full; state flushed earlier is intact."""


class DamagedStateError(StateError):
    """The files of a store cannot be read; they are dropped and restored from the changelog."""


class StoreClosedError(StateError):
    """A store was used after it was closed."""


class RecordFailedError(StreamsError):
    """A record could not be processed, and `on_error` is "stop"; `__cause__` is the error.

    The record has changed neither outputs nor state. The task cannot continue.

    Attributes:
        partition: Partition of the record.
        offset: Its offset.
        step: The step of the program that failed.
        reason: What went wrong, in words.
    """

    def __init__(self, partition: TopicPartition, offset: int, step: str, reason: str) -> None:
        """Create the error for one record."""
        self.partition = partition
        self.offset = offset
        self.step = step
        self.reason = reason
        super().__init__(partition, offset, step, reason)

    def __str__(self) -> str:
        """Return which record failed where, and how to continue."""
        where = f"{self.partition.topic}-{self.partition.partition}@{self.offset}"
        return (
            f"{where}: the step {self.step} failed ({self.reason}); correct the program, or skip"
            ' such records with on_error="skip" or on_error="dead-letter"'
        )
