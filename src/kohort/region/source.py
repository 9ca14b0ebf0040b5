"""What may have become of the topics that a region reads: records that are gone, another topic."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from kohort.client.async_admin import AsyncAdminClient
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
    "Records that were not read before are gone. Start the worker again: it reads the new topic as "
    "another one, from its beginning"
)


def told_missing(topic: str) -> str:
    """Say that a topic is not there, and what to do about it."""
    return (
        f"there is no topic {topic}, or this user may not see it, so nothing of it is read: make "
        "it, or give the workers its right name"
    )


async def warn_of_missing(operator: str, settings: ClientSettings, topics: Collection[str]) -> None:
    """Warn of topics that are not there: the group would wait for them without a word.

    Args:
        operator: Who is to read them, for the log.
        settings: How to reach the brokers.
        topics: Their names.
    """
    try:
        async with AsyncAdminClient(**admin_settings(settings)) as admin:
            missing = sorted(set(topics) - await admin.list_topics())
    except KohortError as error:
        log.warning("%s: whether its topics exist is not known: %s", operator, error)
        return
    for each in missing:
        log.warning("%s: %s", operator, told_missing(each))


async def what_is_gone(
    consumer: AsyncConsumer, error: KafkaError, places: Collection[TopicPartition]
) -> str:
    """Say which records that the region has to read are not there any more.

    Args:
        consumer: The one that met the error.
        error: An error of `SOURCE_GONE`.
        places: The partitions that are read.

    Raises:
        KafkaError: The brokers do not tell.
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
        "pass over them. Its output stays as it is; to read what is left, start a region of "
        "another name, with an output of its own: it begins there without state"
    )


def check_topic(consumer: AsyncConsumer, partition: RegionPartition) -> None:
    """Refuse to read another topic of the name from the position in the former one.

    Raises:
        SourceError: The topic was made anew since the group has given it out.
    """
    found = consumer.core.cluster.metadata.topic_id(partition.topic)
    if found is not None and str(found) != partition.topic_id:
        raise SourceError(
            f"{partition.topic} was deleted and made anew: its id was {partition.topic_id} and "
            f"is {found}. {_REMADE}"
        )
