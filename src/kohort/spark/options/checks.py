"""Checks of parsed options that are invalid for a stream, a batch read or a consistent region."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.spark.options.region import NAME
from kohort.spark.options.source import ENDS, SPARK_ONLY, SPLITS, STARTS, SourceOptions
from kohort.spark.options.values import LATEST, OptionError

# Options of streams only.
STREAM_ONLY = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupMode", "positions",
    "exclusive", "checkpointLocation", "commitMetadata",
)  # fmt: skip

# Options that would contradict the region.
_REFUSED_IN_REGION = {
    "minPartitions": "a partition must not be split into tasks",
    "maxRecordsPerPartition": "a partition must not be split into tasks",
    "minOffsetsPerTrigger": "a checkpoint waits for the open batch, and a batch for nothing",
    "maxTriggerDelay": "a checkpoint waits for the open batch, and a batch for nothing",
    "positions": "the region alone holds positions",
    "checkpointLocation": "the region alone holds positions, not the checkpoint of Spark",
    "commitMetadata": "the region commits its checkpoints to the group, for display only",
    "exclusive": "other operators of the region are in the group",
    "startingOffsetsByTimestamp": "a start position is chosen for all partitions: "
    "startingOffsets=earliest, latest or committed, or startingTimestamp",
    "startingOffsetsByTimestampStrategy": "a partition without such a record starts at its end",
}


def check_stream_options(options: SourceOptions) -> None:
    """Refuse options that are invalid for a stream.

    Raises:
        OptionError: An option is invalid; the message names it.
    """
    for name in reversed(ENDS):
        if name in options.given:
            raise OptionError(f"{name} is not valid in a stream, which has no end")
    check_region_options(options)
    mode = options.group_mode
    if mode != "none" and not options.group_id:
        raise OptionError(
            "kafka.group.id is required: a stream of the kohort source is a member of a group. "
            "Set groupMode=none to read without one, as Spark's own source does"
        )
    if mode == "member" and options.assigned:
        raise OptionError(
            "assign names the partitions, but in groupMode=member the group assigns them: use "
            "subscribe, or groupMode=commitOnly to read these partitions and commit to the group"
        )
    if mode == "none" and options.exclusive:
        raise OptionError("exclusive=true needs a group, but groupMode=none has none")
    if mode == "none" and options.positions == "group":
        raise OptionError("positions=group needs a group, but groupMode=none has none")


def check_batch_options(options: SourceOptions) -> None:
    """Refuse options that are invalid for a batch read, as Spark's own source does.

    Raises:
        OptionError: An option is invalid; the message names it.
    """
    if options.region is not None:
        raise OptionError(f"{NAME} is for streams: a batch read cannot be an operator of a region")
    part = next((name for name in (*STARTS, *SPLITS) if name in options.given), "")
    if options.is_table and part:
        raise OptionError(
            f"{part} is not valid with table: the last value of a key may be anywhere in its "
            "partition, so one task reads all of it. Use subscribe to read the changes"
        )
    start = options.starting_offsets
    if start == "latest":
        raise OptionError("startingOffsets=latest is not valid in a batch read: it reads nothing")
    if isinstance(start, Mapping):
        for topic, partition in (each for each, offset in start.items() if offset == LATEST):
            raise OptionError(
                f"startingOffsets of {topic}-{partition} cannot be latest (-1) in a batch read"
            )


def ignored_options(options: SourceOptions, *, is_stream: bool) -> list[str]:
    """Return a note for each given option that has no effect.

    Args:
        options: The options of the `load()`.
        is_stream: Whether they are for a stream; otherwise for a batch read.
    """
    given = options.given
    notes = [f"{name}: {why}" for name, why in SPARK_ONLY.items() if name in given]
    for names in (STARTS, ENDS):
        first, *others = [name for name in names if name in given] or [""]
        notes += [f"{name}: {first} comes first" for name in others]
    if not is_stream:
        notes += [f"{name}: only for streams" for name in STREAM_ONLY if name in given]
    elif "maxTriggerDelay" in given and options.min_offsets_per_trigger is None:
        notes.append("maxTriggerDelay: it limits the wait for minOffsetsPerTrigger")
    return notes


def check_region_options(options: SourceOptions) -> None:
    """Refuse options that are invalid in a region.

    Raises:
        OptionError: An option is invalid; the message names it and the reason.
    """
    from kohort.region.names import problem_of

    if options.region is None:
        return
    if not options.settings.get("client.id"):
        raise OptionError(
            f"{NAME} needs kafka.client.id: it names the operator, and no other query or worker of "
            "the region may have the same name"
        )
    problem = problem_of(options.operator, options.group_id or "")
    if problem:
        raise OptionError(f"{NAME}: {problem} (kafka.client.id, kafka.group.id)")
    if options.group_mode != "member" or options.assigned:
        raise OptionError(f"{NAME} needs groupMode=member with subscribe or subscribePattern")
    if options.settings.get("allow.auto.create.topics", "false").lower() == "true":
        raise OptionError(
            f"kafka.allow.auto.create.topics cannot be combined with {NAME}: no client of a region "
            "creates topics, as a deleted source topic would seem to be empty"
        )
    for name, why in _REFUSED_IN_REGION.items():
        if name in options.given:
            raise OptionError(f"{name} cannot be combined with {NAME}: {why}")
    if not (options.starting_offsets is None or isinstance(options.starting_offsets, str)):
        raise OptionError(
            f"startingOffsets by partition cannot be combined with {NAME}: "
            f"{_REFUSED_IN_REGION['startingOffsetsByTimestamp']}"
        )
