"""Convert new positions of a group to offsets: a start, an end, an offset or a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from kohort.client.admin.values import OffsetReset, OffsetSpec
from kohort.client.config import arguments
from kohort.errors import KafkaError, PartialFailureError
from kohort.types import TopicPartition

# Timestamps for the start and end of a partition in ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2
_ENDS: Final = {"latest": LATEST, "earliest": EARLIEST}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Resets: TypeAlias = dict[TopicPartition, OffsetSpec]
Errors: TypeAlias = dict[object, KafkaError]
ListOffsets: TypeAlias = Callable[
    [Mapping[TopicPartition, int]], Awaitable[dict[TopicPartition, int | None]]
]


def checked_resets(value: object) -> Resets:
    """Check positions for partitions; see `AdminClient.reset_group_offsets`.

    Raises:
        TypeError: It is not such a mapping.
        ValueError: A time has no time zone, or an offset is negative.
    """
    given = arguments.mapping(value, "offset_specs")
    return {
        arguments.partition(where, "a key of offset_specs"): _checked(spec, f"of {where}")
        for where, spec in given.items()
    }


def _checked(spec: object, where: str) -> OffsetSpec:
    if isinstance(spec, datetime):
        if spec.utcoffset() is None:
            raise ValueError(f"the time {where}, {spec}, needs a time zone")
        return spec
    if isinstance(spec, str) and spec in _ENDS:
        return "earliest" if spec == "earliest" else "latest"
    if arguments.as_int(spec) is None:
        raise TypeError(
            f'the offset {where} must be "earliest", "latest", a whole number or a datetime, not'
            f" {arguments.shown(spec)}"
        )
    return arguments.offset(spec, f"the offset {where}")


async def resolved(
    resets: Resets, list_offsets: ListOffsets
) -> tuple[dict[TopicPartition, OffsetReset], Errors]:
    """Return a valid offset for each partition, and errors of those without one.

    Args:
        resets: The positions.
        list_offsets: Asks the brokers for offsets by timestamp.

    Raises:
        KafkaError: None of the partitions exists, or there was no answer.
    """
    if not resets:
        return {}, {}
    ends, errors = await _listed(dict.fromkeys(resets, LATEST), list_offsets)
    targets = {where: _target(spec) for where, spec in resets.items() if where in ends}
    asked = {where: target for where, target in targets.items() if target != LATEST}
    found, more = await _listed(asked, list_offsets) if asked else ({}, {})
    errors.update(more)
    offsets = {
        where: _reset(resets[where], found.get(where), ends[where] or 0)  # the end always exists
        for where in sorted(targets)
        if where not in errors
    }
    return offsets, errors


async def _listed(
    targets: Mapping[TopicPartition, int], list_offsets: ListOffsets
) -> tuple[dict[TopicPartition, int | None], Errors]:
    """Return the offsets that were found, and errors for the others."""
    try:
        return await list_offsets(targets), {}
    except PartialFailureError as error:
        found = {
            where: offset
            for where in targets
            if where in error.results
            and ((offset := error.results[where]) is None or isinstance(offset, int))
        }
        return found, error.errors


def _target(spec: OffsetSpec) -> int:
    """Return the timestamp to request; offsets are compared with the start."""
    if isinstance(spec, datetime):
        return max(-((_EPOCH - spec) // timedelta(milliseconds=1)), 0)  # rounded up
    return _ENDS[spec] if isinstance(spec, str) else EARLIEST


def _reset(spec: OffsetSpec, found: int | None, end: int) -> OffsetReset:
    if spec == "latest":
        return OffsetReset(end)
    if isinstance(spec, int):
        begin = found or 0
        if spec < begin:
            return OffsetReset(begin, f"offset {spec} is before the first, {begin}")
        return OffsetReset(spec) if spec <= end else _at_end(f"offset {spec} is beyond it", end)
    if found is None:
        return _at_end(f"no record is at or after {spec}", end)
    return OffsetReset(found)


def _at_end(why: str, end: int) -> OffsetReset:
    return OffsetReset(end, f"the end, {end}: {why}")
