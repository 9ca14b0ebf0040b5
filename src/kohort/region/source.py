"""Problems with the topics that a region reads: deleted records, recreated topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.consumer.aio import internals_of
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.region.errors import SourceError
from kohort.region.settings import ClientSettings, admin_settings

if TYPE_CHECKING:
    from kohort.client import AsyncConsumer
    from kohort.region.machines.records import RegionPartition
    from kohort.types import TopicPartition

log = logging.getLogger("kohort.region")

SOURCE_GONE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)
_REMADE = (
    "Records that were not read before are lost. Restart the worker: it reads the new topic "
    "from its beginning"
)
# How long all answers must lack a topic: a broker that has just started may not know it yet.
_GONE_S = 5.0
_ANSWERS_WITHOUT = 3


def told_missing(topic: str) -> str:
    """Return a message about a missing topic, and the remedy."""
    return (
        f"there is no topic {topic}, or this user may not see it, so it is not read: create "
        "it, or give the workers its correct name"
    )


async def warn_of_missing(operator: str, settings: ClientSettings, topics: Collection[str]) -> None:
    """Warn about missing topics, for which the group would wait silently.

    Args:
        operator: The operator that should read them, for the log.
        settings: How to reach the brokers.
        topics: Their names.
    """
    try:
        async with AsyncAdminClient(**admin_settings(settings)) as admin:
            missing = sorted(set(topics) - await admin.list_topics())
    except KohortError as error:
        log.warning("%s: cannot find out whether its topics exist: %s", operator, error)
        return
    for each in missing:
        log.warning("%s: %s", operator, told_missing(each))


async def what_is_gone(
    consumer: AsyncConsumer, error: KafkaError, places: Collection[TopicPartition]
) -> str:
    """Describe records that were deleted before the region has read them.

    Args:
        consumer: The consumer that received the error.
        error: An error of `SOURCE_GONE`.
        places: The partitions that it reads.

    Raises:
        KafkaError: The brokers do not answer.
    """
    if error.code == ErrorCode.UNKNOWN_TOPIC_ID:
        return f"{error}. {_REMADE}"
    begins = await consumer.beginning_offsets(list(places))
    at = consumer.positions()
    gaps = sorted(
        f"{place.topic}-{place.partition} from {at[place]} to {begins[place] - 1}"
        for place in places
        if place in at and at[place] < begins[place]
    )
    return (
        f"{error}. Records were deleted, by retention or by hand, before the region has read "
        f"them: {', '.join(gaps) or 'the topic ends before that offset'}. A region does not "
        "skip records. Its output stays as it is; to read what is left, start a region of "
        "another name, with an output of its own: it begins there without state"
    )


class Sources:
    """Detects that a topic assigned to an operator was deleted or recreated.

    The group then merely revokes its partitions, as in any other rebalance. Topics stay known until
    the operator ends: a rebalance may come before the operator knows its cause.

    Args:
        consumer: The operator's consumer; it keeps the metadata of its topics fresh.
    """

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        # The last assigned partition of each topic, by topic name.
        self._known: dict[str, RegionPartition] = {}
        # Topics missing in the last answers: since when, in how many answers, and the last of
        # these.
        self._missing: dict[str, tuple[float, int, object]] = {}

    def assigned(self, partitions: Iterable[RegionPartition]) -> None:
        """Remember the topics of an assignment.

        Raises:
            SourceError: A topic differs from the one assigned before.
        """
        for each in partitions:
            known = self._known.setdefault(each.topic, each)
            if known.topic_id != each.topic_id:
                raise _remade(known, each.topic_id)

    def look(self) -> None:
        """Compare the topics with the brokers' last answer.

        Raises:
            SourceError: A topic was deleted, and may have been recreated since.
        """
        for name, known in self._known.items():
            if internals_of(self._consumer).core.cluster.metadata.topic_id(name) is None:
                self._miss(name)
            else:
                self._missing.pop(name, None)
                check_topic(self._consumer, known)

    def _miss(self, name: str) -> None:
        cluster = internals_of(self._consumer).core.cluster
        now = time.monotonic()
        since, answers, last = self._missing.get(name, (now, 0, None))
        # A broker that is starting or stopping may list no brokers and no topics.
        if cluster.metadata is not last and cluster.metadata.nodes:
            answers += 1
        self._missing[name] = since, answers, cluster.metadata
        if answers >= _ANSWERS_WITHOUT and now - since >= _GONE_S:
            raise SourceError(
                f"{name} was deleted: the brokers have not known it for {now - since:.0f} s. "
                f"{_REMADE}, once it exists"
            )
        cluster.request_refresh()


def check_topic(consumer: AsyncConsumer, partition: RegionPartition) -> None:
    """Refuse to read a recreated topic from a position in the former topic.

    Raises:
        SourceError: The topic was recreated after the group had assigned it.
    """
    found = internals_of(consumer).core.cluster.metadata.topic_id(partition.topic)
    if found is not None and str(found) != partition.topic_id:
        raise _remade(partition, str(found))


def _remade(partition: RegionPartition, topic_id: str) -> SourceError:
    return SourceError(
        f"{partition.topic} was deleted and recreated: its id was {partition.topic_id} and "
        f"is now {topic_id}. {_REMADE}"
    )
