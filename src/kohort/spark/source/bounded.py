"""The ranges of a batch read, checked against the brokers' logs before any task starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kohort.spark.checkpoint.manifest import Range
from kohort.spark.options.checks import check_batch_options, ignored_options
from kohort.spark.options.source import OptionError, SourceOptions
from kohort.spark.source.lookup import DataLossError, Lookup, shown_partitions
from kohort.types import TopicPartition

log = logging.getLogger("kohort.spark")


def bounded_ranges(options: SourceOptions, lookup: Lookup) -> dict[TopicPartition, Range]:
    """Return the non-empty ranges of a batch read.

    Args:
        options: The options of the `load()`.
        lookup: Queries the brokers.

    Raises:
        OptionError: A range ends or starts past the end of its log, or ends before it starts.
        DataLossError: The first records of a range are gone, and `failOnDataLoss` is true.
        KafkaError: A topic does not exist, or the brokers do not answer.
    """
    check_batch_options(options)
    note_ignored_options(options, is_stream=False)
    partitions = lookup.partitions(lookup.partition_counts())
    if not partitions:
        log.warning("a batch read of %s reads nothing: no topic exists", options.selection)
        return {}
    starts = lookup.starting(partitions, default="earliest")
    ends = lookup.ending(partitions)
    ranges = {partition: (starts[partition], ends[partition]) for partition in sorted(partitions)}
    left = _present(ranges, lookup, fails=options.fail_on_data_loss)
    return {partition: bounds for partition, bounds in left.items() if bounds[0] < bounds[1]}


def note_ignored_options(options: SourceOptions, *, is_stream: bool) -> None:
    """Log the options that have no effect.

    Args:
        options: The options of the `load()`.
        is_stream: Whether they are for a stream; otherwise for a batch read.
    """
    for note in ignored_options(options, is_stream=is_stream):
        log.warning("an option has no effect; %s", note)


def _present(
    ranges: Mapping[TopicPartition, Range], lookup: Lookup, *, fails: bool
) -> dict[TopicPartition, Range]:
    """Return the existing part of the ranges; raise an error for the rest, or log it."""
    logs = lookup.logs(ranges)
    left = {}
    for partition, (start, end) in ranges.items():
        first, last = logs[partition]
        left[partition] = (min(max(start, first), last), min(end, last))
        why = _what_is_missing(start, end, first, last)
        if why:
            name = shown_partitions([partition])
            _report(f"{name} holds offsets {first} to {last}, and {why}", start < first, fails)
    return left


def _what_is_missing(start: int, end: int, first: int, last: int) -> str:
    if start > last:
        return f"the read is to start at {start}, past the end"
    if end > last:
        return f"the read is to end at {end}, past the end"
    if start > end:
        return f"the read is to start at {start} and to end at {end}, before it starts"
    if start < first and start < end:
        lost = min(end, first) - start
        return f"the read is to start at {start}: {lost} offsets were deleted before"
    return ""


def _report(what: str, is_loss: bool, fails: bool) -> None:
    remedy = "Set failOnDataLoss=false to read what there is"
    if not fails:
        log.warning("%s; failOnDataLoss is false, so the existing part is read", what)
    elif is_loss:
        raise DataLossError(f"{what}. {remedy}")
    else:
        raise OptionError(f"{what}. Change startingOffsets or endingOffsets. {remedy}")
