"""The end of all logs of a directory: one that cannot be closed in order keeps no other from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import Struct

from kohort.broker.log.partition_log import PartitionLog
from kohort.broker.log.storage import advice
from kohort.types import TopicPartition

logger = logging.getLogger(__name__)

_NAMED = 20
_CHECKED = "the next start checks them as after a crash"
_UNMARKED = (
    "the state of their producers and the note that they were closed in order were not written;"
    f" nothing that was acknowledged is lost, and {_CHECKED}"
)
_UNSYNCED = (
    "their last records were acknowledged, and it is not known that they are on the disk;"
    f" {_CHECKED}"
)


class _Cause(Struct, frozen=True):
    """Why logs could not be closed in order, and what that means for them."""

    reason: str
    meaning: str
    advice: str


def close_all(logs: Mapping[TopicPartition, PartitionLog]) -> None:
    """Close logs, and tell each cause once for which some could not be closed in order."""
    failed: dict[_Cause, list[TopicPartition]] = {}
    for partition, log in logs.items():
        try:
            log.close()
        except OSError as error:
            meaning = _UNMARKED if log.is_flushed else _UNSYNCED
            cause = _Cause(error.strerror or str(error), meaning, advice(error))
            failed.setdefault(cause, []).append(partition)
    for cause, partitions in failed.items():
        logger.error(
            "%s: partitions could not be closed in order: %s; %s; %s",
            cause.reason,
            _listed(partitions),
            cause.meaning,
            cause.advice,
        )


def _listed(partitions: list[TopicPartition]) -> str:
    named = [f"{each.topic}-{each.partition}" for each in sorted(partitions)]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} others" if more > 0 else "")
