"""Current problems, each logged once rather than at each attempt, and again when it is over."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping

from kohort.client.net.metadata import ClusterMetadata
from kohort.errors import ErrorCode, KafkaError, error_name, error_text
from kohort.types import TopicPartition

log = logging.getLogger("kohort.client")

# Most causes that are logged for one problem: an answer may have a different text each time.
_MOST_CAUSES = 8
# A new topic is missing from the first answers, and electing a new leader takes time.
_ANSWERS_WITHOUT = 3
_ANSWERS_WITHOUT_LEADER = 5

_COMMITS = "commits in the background"

SHOWN_BY_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors of other requests about a topic that `TopicIncidents` already reports."""


class Incidents:
    """Logs each cause of each problem once, at level WARNING.

    Args:
        client: Name of the client in log lines; a process may have many clients.

    Attributes:
        client: The same name.
    """

    def __init__(self, client: str) -> None:
        self.client = client
        self._told: dict[Hashable, set[str]] = {}

    def say(self, text: str) -> None:
        """Log a single event, with the client's name."""
        log.warning("%s: %s", self.client, text)

    def note(self, key: Hashable, cause: str, text: str) -> None:
        """Log a problem unless this cause of it was logged before.

        Args:
            key: Identifies the problem.
            cause: The cause; a new cause is logged again.
            text: The text to log.
        """
        told = self._told.setdefault(key, set())
        if cause not in told and len(told) < _MOST_CAUSES:
            told.add(cause)
            self.say(text)

    def note_defect(self, what: str, error: Exception) -> None:
        """Log an unexpected error with its traceback, unless it was logged before.

        Args:
            what: The operation that failed and is tried again.
            error: The error.
        """
        told = self._told.setdefault(what, set())
        cause = repr(error)
        if cause not in told and len(told) < _MOST_CAUSES:
            told.add(cause)
            text = "%s: %s failed because of a bug in the client, and is tried again"
            log.warning(text, self.client, what, exc_info=error)

    def forget(self, key: Hashable) -> None:
        """Forget a problem that is no longer checked, without logging that it is over."""
        self._told.pop(key, None)

    def over(self, key: Hashable, text: str) -> None:
        """Log that a problem is over, if it was logged before."""
        if self._told.pop(key, None):
            self.say(text)

    def judge_commit(self, error: BaseException | None) -> None:
        """Log once that background commits fail, and once that they succeed again.

        Args:
            error: Why a commit failed; None when it succeeded.
        """
        if error is None:
            self.over(_COMMITS, "commits in the background are stored again")
        else:
            cause = error.name if isinstance(error, KafkaError) else type(error).__name__
            self.note(_COMMITS, cause, f"a commit in the background failed: {error_text(error)}")


class TopicIncidents:
    """Reports topics and partitions that are missing, or have no leader, for several answers.

    Args:
        incidents: Where problems are reported.
    """

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents
        self._answers: dict[Hashable, int] = {}

    def judge(
        self,
        metadata: ClusterMetadata,
        topics: Iterable[str],
        partitions: Iterable[TopicPartition],
        source: str,
    ) -> None:
        """Check a new metadata answer.

        Args:
            metadata: The answer.
            topics: The requested topics.
            partitions: The partitions to be used.
            source: Name of the broker that answered, for messages.
        """
        topics, partitions = list(topics), list(partitions)
        lacking = _lacking(metadata, topics, partitions)
        wanted = {f"topic {name}" for name in topics} | {_shown(each) for each in partitions}
        for name in self._answers.keys() - lacking.keys():
            del self._answers[name]
            if name in wanted:
                self._incidents.over(name, f"{name} is available now")
            else:
                self._incidents.forget(name)
        for name, cause in lacking.items():
            self._answers[name] = self._answers.get(name, 0) + 1
            is_led = cause != ErrorCode.LEADER_NOT_AVAILABLE.name
            if self._answers[name] >= (_ANSWERS_WITHOUT if is_led else _ANSWERS_WITHOUT_LEADER):
                text = f"{name} cannot be used: {cause}, says {source}; asking again until it can"
                self._incidents.note(name, cause, text)


def _lacking(
    metadata: ClusterMetadata, topics: Iterable[str], partitions: Iterable[TopicPartition]
) -> Mapping[str, str]:
    """Return why wanted topics and partitions cannot be used, by their name in messages."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    found: dict[str, str] = {}
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is None or topic.error_code:
            found[f"topic {name}"] = error_name(topic.error_code) if topic else unknown
    for partition in partitions:
        topic = metadata.topics.get(partition.topic)
        if topic is None or topic.error_code:
            continue
        where = _shown(partition)
        if partition.partition not in topic.partitions:
            found[where] = f"{unknown}, the topic has {len(topic.partitions)} partitions"
        elif metadata.leader(partition) is None:
            found[where] = ErrorCode.LEADER_NOT_AVAILABLE.name
    return found


def _shown(partition: TopicPartition) -> str:
    return f"partition {partition.topic}-{partition.partition}"
