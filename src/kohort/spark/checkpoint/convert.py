"""Converts checkpoints of Spark's own Kafka source to this package's, and vice versa.

No I/O and no clock: the input is the state of the checkpoint, the group and Kafka; the output is
the files to write. Spark reads two batches when it starts: the last one, and the one before it,
whose end is the last one's start. Everything else in a checkpoint (the state of operators, commits,
the query's id) belongs to Spark and stays unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from kohort.spark.checkpoint.history import INITIAL, History, Offsets, initial_text, kafka_json
from kohort.spark.checkpoint.log import CheckpointError
from kohort.spark.checkpoint.manifest import Manifest, Range, trim
from kohort.spark.source.group_offsets import GroupOffsets, Note, Topic
from kohort.spark.source.start_positions import Known, Origin, Policy, Start
from kohort.types import OffsetAndMetadata, TopicPartition

# How to treat a batch that has begun but not finished.
OpenBatch: TypeAlias = Literal["repeat", "drop"]

OPERATOR = "import-checkpoint"


class Conversion(Struct, frozen=True):
    """The result of a conversion.

    Attributes:
        files: New text of the checkpoint's files; None: remove the file.
        positions: Where the query continues, or where its replayed batch begins.
        warnings: Messages for the operator.
    """

    files: Mapping[str, str | None]
    positions: Offsets
    warnings: tuple[str, ...] = field(default=())


def check_open_batch(history: History, choice: OpenBatch | None) -> None:
    """Refuse a checkpoint with an open batch unless the user has chosen how to treat it.

    Raises:
        CheckpointError: The checkpoint has an open batch.
    """
    batch = history.open_batch
    if batch is None or choice is not None:
        return
    raise CheckpointError(
        f"{history.location}: batch {batch} has begun (offsets/{batch}) and is not finished (no "
        f"commits/{batch}); its rows may be in the sink, all or some. Let the old query finish it "
        "(trigger availableNow), or choose: --open-batch repeat runs the same batch again "
        "under its number, as Spark does after a crash; --open-batch drop forgets it, and its "
        "records come again in a batch with other bounds, which a sink that knows batches by their "
        "number (files, delta) takes for the same one and may skip"
    )


# ------------------------------------------------------------------------ from Spark's own source


def starts_of(history: History, choice: OpenBatch | None, first: Offsets) -> Offsets:
    """Return where a query of Spark's own source continues, or where its replayed batch begins.

    Args:
        history: Its checkpoint.
        choice: How to treat an open batch.
        first: Where the partitions now begin: Spark's source starts there in partitions that were
            added with the open batch.

    Raises:
        CheckpointError: The start of the open batch is not in the checkpoint.
    """
    batch = history.open_batch
    if batch is None:
        return history.offsets(history.finished)
    before = _before(history, batch)
    if choice != "repeat":
        there = history.offsets(batch).keys()  # the topics of the others were deleted
        return {place: at for place, at in before.items() if place in there}
    return {place: before.get(place, first[place]) for place in history.offsets(batch)}


def _before(history: History, batch: int) -> Offsets:
    if batch - 1 in history.entries:
        return history.offsets(batch - 1)
    if batch == 0 and history.initial:
        return history.initial
    raise CheckpointError(
        f"{history.location} does not say where batch {batch} begins: it has no "
        + (INITIAL if batch == 0 else f"offsets/{batch - 1}")
    )


def to_kohort(
    history: History,
    choice: OpenBatch | None,
    starts: Offsets,
    ids: Mapping[str, str],
    nonce: str,
) -> Conversion:
    """Convert a checkpoint of Spark's own source to one of this package's.

    Args:
        history: Its contents.
        choice: How to treat an open batch.
        starts: The result of `starts_of`.
        ids: Ids of the topics; empty if the brokers do not send them.
        nonce: Identifies the new checkpoint.
    """
    files: dict[str, str | None] = {}
    for batch, entry in history.entries.items():
        file = f"offsets/{batch}"
        if batch == history.open_batch and choice == "drop":
            files[file] = None
            continue
        ends = history.offsets(batch)
        ranges = _ranges(history, batch, ends, starts)
        manifest = Manifest(-1, OPERATOR, ranges, batch + 1, nonce, topics_of(ends, ids))
        # exactly as PySpark writes it: any difference would look like a new batch
        files[file] = entry.text(json.dumps(manifest.to_json()))
    _add_the_one_before(files)
    return Conversion(files, starts)


def _add_the_one_before(files: dict[str, str | None]) -> None:
    """Keep the batch before the last: Spark reads it at startup, but may have removed it."""
    left = [int(name.removeprefix("offsets/")) for name, text in files.items() if text is not None]
    last = max(left, default=0)
    if last > 0 and files.get(f"offsets/{last - 1}") is None:
        files[f"offsets/{last - 1}"] = files[f"offsets/{last}"]


def _ranges(
    history: History, batch: int, ends: Offsets, starts: Offsets
) -> dict[TopicPartition, Range]:
    if batch == history.open_batch:
        return {place: (starts[place], end) for place, end in ends.items()}
    # Only the end of a finished batch matters; its start may be unknown.
    known = history.initial if batch == 0 else {}
    before = history.offsets(batch - 1) if batch - 1 in history.entries else known
    return {place: (min(before.get(place, end), end), end) for place, end in ends.items()}


def topics_of(places: Iterable[TopicPartition], ids: Mapping[str, str]) -> dict[str, Topic]:
    """Return topics with the checkpoint's numbers of partitions: partitions added since are new."""
    counts: dict[str, int] = {}
    for topic, number in places:
        counts[topic] = max(counts.get(topic, 0), number + 1)
    return {topic: Topic(ids.get(topic, ""), count) for topic, count in counts.items()}


def commits_of(
    conversion: Conversion, ids: Mapping[str, str], nonce: str, batch: int, now_ms: int
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the commits for the group: where the query continues, with the checkpoint's notes.

    Args:
        conversion: The new checkpoint.
        ids: Ids of the topics.
        nonce: Identifies the checkpoint.
        batch: Number of batches that the query has begun.
        now_ms: The time, in milliseconds since 1970.
    """
    topics = topics_of(conversion.positions, ids)
    notes = {
        name: Note(
            operator=OPERATOR,
            nonce=nonce,
            batch=max(batch, 1),  # so that new partitions are read from their beginning
            topic_id=topic.topic_id,
            count=topic.count,
            at_ms=now_ms,
        ).to_text()
        for name, topic in topics.items()
    }
    return {
        place: OffsetAndMetadata(at, notes[place.topic])
        for place, at in conversion.positions.items()
    }


def added_to_the_group(group: GroupOffsets, conversion: Conversion) -> list[str]:
    """Return a warning for each group offset from which the query would silently continue.

    Its checkpoint lacks the partition, and Spark's own source would read it from its beginning.

    Args:
        group: The group's offsets.
        conversion: The new checkpoint.
    """
    return [
        f"the checkpoint does not have {place.topic}-{place.partition}, and the group has offset "
        f"{at} for it: a query that reads it continues from there"
        for place, at in sorted(group.offsets.items())
        if place not in conversion.positions
    ]


# -------------------------------------------------------------------------- to Spark's own source


def wanted_of(history: History, counts: Mapping[str, int]) -> frozenset[TopicPartition]:
    """Return the partitions read by a query of this package and its group's other members.

    A member of a group owns only some; other queries (`groupMode`, or just imported) list all.

    Args:
        history: The query's checkpoint.
        counts: Current number of partitions of its topics.
    """
    last = history.manifest(max(history.entries))
    if last.epoch < 0 and last.ranges:
        return frozenset(last.ranges)
    return frozenset(
        TopicPartition(name, number) for name in counts for number in range(counts[name])
    )


def placed(
    history: History,
    wanted: Iterable[TopicPartition],
    group: GroupOffsets,
    policy: Policy,
    now_ms: int,
) -> dict[TopicPartition, Start]:
    """Return the start of each partition, by the rules for a starting query.

    Args:
        history: The query's checkpoint.
        wanted: The partitions.
        group: The group's offsets.
        policy: Whether the group or the checkpoint applies if they disagree; None: the newer one.
        now_ms: The time, in milliseconds since 1970.
    """
    over = history.manifest(history.finished) if history.finished >= 0 else Manifest()
    last = history.manifest(max(history.entries))
    places = frozenset(wanted)
    known = Known(
        group=group,
        nonce=last.nonce,
        ends={place: end for place, (_, end) in over.ranges.items()},
        counts={name: topic.count for name, topic in over.topics.items()},
        has_placed=bool(over.ranges),
        firsts=over.firsts,
        now_ms=now_ms,
        policy=policy,
        batch=last.batch,
        is_alone=last.epoch < 0 and bool(last.ranges),  # not a member
        unnamed=places - last.ranges.keys() if last.ranges else frozenset(),
    )
    return {place: known.start(place) for place in places}


def positions_of(
    history: History,
    starts: Mapping[TopicPartition, Start],
    group: GroupOffsets,
    first: Offsets,
) -> Offsets:
    """Return the offsets of the starts from `placed`.

    Args:
        history: The query's checkpoint.
        starts: The result of `placed`.
        group: The group's offsets.
        first: Where the partitions now begin.

    Raises:
        CheckpointError: The position of a partition is unknown.
    """
    over = history.manifest(history.finished) if history.finished >= 0 else Manifest()
    open_batch = history.open_batch
    begun = history.manifest(open_batch) if open_batch is not None else Manifest()
    found: dict[TopicPartition, int] = {}
    for place, start in sorted(starts.items()):
        if start.origin is Origin.GROUP:
            found[place] = group.offsets[place]
        elif start.origin is Origin.CHECKPOINT:
            found[place] = over.ranges[place][1]
        elif start.origin is Origin.FIRST:
            found[place] = over.firsts[place]
        elif place in begun.ranges:  # its first batch, which is not finished
            found[place] = begun.ranges[place][0]
        elif start.origin is Origin.EARLIEST:
            found[place] = first[place]
        else:
            raise CheckpointError(
                f"neither {history.location} nor the group says where {place.topic}-"
                f"{place.partition} goes on: no query has finished a batch of it. Start Spark's "
                "own source with a new checkpointLocation"
            )
    return found


def to_spark(history: History, choice: OpenBatch | None, positions: Offsets) -> Conversion:
    """Convert a checkpoint of this package's source to one of Spark's own.

    It writes only the batches that Spark reads at startup: for older ones, the positions of
    partitions read by other members of the group are unknown.

    Args:
        history: Its contents.
        choice: How to treat an open batch.
        positions: The result of `positions_of`: where each partition continues.

    Raises:
        CheckpointError: The open batch begins after a position, so it would skip records.
    """
    files: dict[str, str | None] = {f"offsets/{each}": None for each in history.entries}
    starts, batch = dict(positions), history.open_batch
    if batch is not None and choice == "repeat":
        ranges = _left(history, batch, positions)
        starts |= {place: start for place, (start, _) in ranges.items()}
        ends = {**starts, **{place: end for place, (_, end) in ranges.items()}}
        files[f"offsets/{batch}"] = history.entries[batch].text(kafka_json(ends))
    if history.finished >= 0:
        entry = history.entries[history.finished]
        files[f"offsets/{history.finished}"] = entry.text(kafka_json(starts))
    _add_the_one_before(files)
    # Where Spark's source began; read only before batch 0.
    files[INITIAL] = initial_text(starts)
    return Conversion(files, starts)


def _left(history: History, batch: int, positions: Offsets) -> dict[TopicPartition, Range]:
    """Return the rest of an open batch: the group may have committed part of it."""
    ranges = history.manifest(batch).ranges
    behind = sorted(p for p, (start, end) in ranges.items() if positions.get(p, end) < start < end)
    if behind:
        (topic, number), start = behind[0], ranges[behind[0]][0]
        raise CheckpointError(
            f"{history.location}: the open batch {batch} begins {topic}-{number} at {start}, and "
            f"the query is to go on from {positions[behind[0]]}, which was set: choose "
            "--open-batch drop"
        )
    return trim(ranges, positions)
