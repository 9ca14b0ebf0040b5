"""What may have become of the topics that a region reads: records that are gone, another topic."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError
from kohort.region.errors import SourceError

if TYPE_CHECKING:
    from kohort.client import AsyncConsumer
    from kohort.region.machines.records import RegionPartition
    from kohort.types import TopicPartition

SOURCE_GONE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)
_REMADE = (
    "Records that were not read before are gone. Start the worker again: it reads the new topic as "
    "another one, from its beginning"
)


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
