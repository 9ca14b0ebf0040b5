"""Problems with the topics that a region reads: deleted records, recreated topics."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from kohort.client.admin.aio import AsyncAdminClient
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
    "Records that were not read before are gone. Start the worker again: it reads the new topic "
    "from its beginning"
)


def told_missing(topic: str) -> str:
    """Say that a topic does not exist, and what to do about it."""
    return (
        f"there is no topic {topic}, or this user may not see it, so it is not read: create "
        "it, or give the workers its right name"
    )


async def warn_of_missing(operator: str, settings: ClientSettings, topics: Collection[str]) -> None:
    """Warn of missing topics, for which the group would wait silently.

    Args:
        operator: The operator that is to read them, for the log.
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
    """Say which records were deleted before the region has read them.

    Args:
        consumer: The consumer that met the error.
        error: An error of `SOURCE_GONE`.
        places: The partitions that are read.

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


def check_topic(consumer: AsyncConsumer, partition: RegionPartition) -> None:
    """Refuse to read a recreated topic from a position in the former one.

    Raises:
        SourceError: The topic was recreated after the group had assigned it.
    """
    found = consumer.core.cluster.metadata.topic_id(partition.topic)
    if found is not None and str(found) != partition.topic_id:
        raise SourceError(
            f"{partition.topic} was deleted and recreated: its id was {partition.topic_id} and "
            f"is now {found}. {_REMADE}"
        )
