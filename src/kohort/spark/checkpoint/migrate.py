"""Moves a query between Spark's own Kafka source and this package's, with its checkpoint.

The steps of each move: check that the query and its group are idle, query Kafka, compute the new
checkpoint, write it, and only then commit to the group. A failure before the last two steps changes
nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct, field

from kohort.errors import ErrorCode, KafkaError
from kohort.spark.checkpoint.convert import (
    Conversion,
    OpenBatch,
    added_to_the_group,
    check_open_batch,
    commits_of,
    placed,
    positions_of,
    starts_of,
    to_kohort,
    to_spark,
    wanted_of,
)
from kohort.spark.checkpoint.files import CheckpointFiles, Look
from kohort.spark.checkpoint.history import History, Offsets, Origin, read_history
from kohort.spark.checkpoint.log import CheckpointError
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.source.group_offsets import GroupOffsets, Topic, group_offsets
from kohort.spark.source.start_positions import Policy
from kohort.types import TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client import AdminClient, Consumer

# A person waits for the response, so this is shorter than a program's minute.
PATIENCE_MS = 10_000
# A running query writes within this time, unless it has nothing to read.
QUIET_S = 10.0
SHOWN = 5


class Move(Struct, frozen=True, kw_only=True):
    """A request to move a query.

    Attributes:
        source: The checkpoint to convert.
        target: Location of its copy; None: change it in place, after a backup.
        bootstrap_servers: The brokers.
        client: Other client settings, by Kafka's own names; they may contain secrets.
        group_id: The group; None: the query has none (`groupMode`=`none`).
        open_batch: How to treat an unfinished batch; None: refuse it.
        positions: Whether the group or a checkpoint of this package applies if they disagree.
        reset_offsets: Whether existing offsets of the group may be replaced.
        quiet_s: Time in seconds within which a running query would have written.
    """

    source: str
    target: str | None
    bootstrap_servers: str
    client: Mapping[str, str] = {}
    group_id: str | None = None
    open_batch: OpenBatch | None = None
    positions: Policy = None
    reset_offsets: bool = False
    quiet_s: float = QUIET_S

    def __repr__(self) -> str:
        return f"Move({self.source!r}, {self.target!r})"  # without secrets of clients


class Moved(Struct, frozen=True, kw_only=True):
    """The result of a move.

    Attributes:
        checkpoint: The converted checkpoint.
        backup: A copy of the original if it was changed in place; otherwise None.
        batch: The last finished batch; -1 before the first.
        open_batch: The batch that was open; None if there was none.
        offsets: Where the query continues, or where its replayed batch begins.
        warnings: Messages for the operator.
    """

    checkpoint: str
    backup: str | None
    batch: int
    open_batch: int | None
    offsets: Offsets
    warnings: tuple[str, ...] = field(default=())


class Kafka:
    """Requests to the brokers and commits to the group; a context manager.

    Args:
        servers: The brokers.
        group_id: The group; None: no group.
        client: Other settings, by Kafka's own names.
    """

    def __init__(self, servers: str, group_id: str | None, client: Mapping[str, str]) -> None:
        from kohort.client import AdminClient, Consumer

        self._group_id = group_id
        given = {**client, "bootstrap.servers": servers}
        all_have = {"default.api.timeout.ms": PATIENCE_MS, **given}
        own = {"enable.auto.commit": False, "allow.auto.create.topics": False}
        self._admin: AdminClient = AdminClient.from_config(all_have)
        self._consumer: Consumer = Consumer.from_config({**all_have, **own})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()
        self._admin.close()

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the current state of topics.

        Raises:
            CheckpointError: One does not exist.
        """
        wanted = sorted(set(names))
        found = self._consumer.topic_metadata(wanted) if wanted else {}
        for name in wanted:
            if name not in found:
                raise CheckpointError(
                    f"topic {name} of the checkpoint does not exist at these brokers: are they the "
                    "right ones? A query whose topic is gone needs a new checkpointLocation"
                )
        return {
            name: Topic(str(each.topic_id) if each.topic_id.int else "", len(each.partitions))
            for name, each in found.items()
        }

    def logs(self, places: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
        """Return the begin and end offsets of partitions."""
        wanted = list(places)
        if not wanted:
            return {}, {}
        return self._consumer.beginning_offsets(wanted), self._consumer.end_offsets(wanted)

    def check_rest(self) -> None:
        """Refuse a group with members: they keep reading, and only they may commit its offsets.

        Raises:
            CheckpointError: It has members.
        """
        if self._group_id is None:
            return
        try:
            members = self._admin.describe_groups([self._group_id])[self._group_id].members
        except KafkaError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            raise
        if members:
            names = sorted({member.client_id for member in members})
            raise CheckpointError(
                f"group {self._group_id} has {len(members)} members ({', '.join(names[:SHOWN])}): "
                "stop all its queries first (kohort.spark.drain), and wait until they have left"
            )

    def offsets(self, topics: Mapping[str, Topic]) -> GroupOffsets:
        """Return the group's committed offsets of topics."""
        if self._group_id is None:
            return GroupOffsets()
        found = self._admin.list_group_offsets(self._group_id)
        return group_offsets(
            {place: at for place, at in found.items() if place.topic in topics}, topics
        )

    def check_offsets(self, offsets: Offsets, topics: Mapping[str, Topic]) -> None:
        """Refuse to replace committed offsets of the group.

        Raises:
            CheckpointError: The group has different offsets.
        """
        found = self.offsets(topics).offsets
        other = sorted(p for p, at in offsets.items() if found.get(p, at) != at)
        if other:
            (topic, number), has = other[0], found[other[0]]
            raise CheckpointError(
                f"group {self._group_id} has offsets of its own for {len(other)} partitions, such "
                f"as {has} for {topic}-{number}, where the checkpoint has {offsets[other[0]]}: "
                "name another group, or replace them with --reset-offsets"
            )

    def group_starts(self, wanted: frozenset[str], missing: int | None) -> Offsets:
        """Return the group's offsets for every partition of topics, see `group_starts`."""
        assert self._group_id is not None, "asked for a group"
        found = self._admin.list_group_offsets(self._group_id)
        topics = self.topics(wanted or {place.topic for place in found})
        if not topics:
            raise CheckpointError(f"group {self._group_id} has no offsets")
        named = self.offsets(topics).offsets
        places = [TopicPartition(n, p) for n, topic in topics.items() for p in range(topic.count)]
        without = sorted(set(places) - named.keys())
        if without and missing is None:
            (topic, number), more = without[0], len(without) - 1
            raise CheckpointError(
                f"group {self._group_id} has no offset for {topic}-{number}"
                + (f" and {more} more" if more else "")
                + ", and Spark's own source wants one for each partition: choose --missing "
                "earliest or --missing latest"
            )
        return {place: named.get(place, missing or 0) for place in places}

    def tell(self, conversion: Conversion, ids: Mapping[str, str], nonce: str, batch: int) -> None:
        """Commit the positions where the query continues.

        Raises:
            CheckpointError: The group has members.
            KafkaError: The broker refuses.
        """
        if self._group_id is None:
            return
        self.check_rest()
        commits = commits_of(conversion, ids, nonce, batch, int(time.time() * 1000))
        self._admin.alter_group_offsets(commits, self._group_id)


def import_checkpoint(move: Move) -> Moved:
    """Convert a checkpoint of Spark's own Kafka source to this package's, and commit to the group.

    Args:
        move: The request.

    Raises:
        CheckpointError: The move failed, and nothing was changed unless the message says otherwise.
        KafkaError: The brokers cannot be reached.
    """
    files, before, history = _at_rest(move, "spark")
    check_open_batch(history, move.open_batch)
    with Kafka(move.bootstrap_servers, move.group_id, move.client) as kafka:
        kafka.check_rest()
        last = history.offsets(max(history.entries))
        topics = kafka.topics(place.topic for place in last)
        first, end = kafka.logs(_existing(history, last, topics))
        starts = starts_of(history, move.open_batch, first)
        nonce, ids = uuid.uuid4().hex, {name: each.topic_id for name, each in topics.items()}
        conversion = to_kohort(history, move.open_batch, starts, ids, nonce)
        conversion = _checked(history, conversion, first, end)
        if not move.reset_offsets:
            kafka.check_offsets(conversion.positions, topics)
        added = added_to_the_group(kafka.offsets(topics), conversion)
        conversion = replace(conversion, warnings=(*conversion.warnings, *added))

        def tell() -> None:
            kafka.tell(conversion, ids, nonce, max(history.entries) + 1)

        return write_moved(move, files, before, history, conversion, tell)


def export_checkpoint(move: Move) -> Moved:
    """Convert a checkpoint of this package's source to one of Spark's own Kafka source.

    Args:
        move: The request.

    Raises:
        CheckpointError: The move failed, and nothing was changed unless the message says otherwise.
        KafkaError: The brokers cannot be reached.
    """
    files, before, history = _at_rest(move, "kohort")
    check_open_batch(history, move.open_batch)
    with Kafka(move.bootstrap_servers, move.group_id, move.client) as kafka:
        kafka.check_rest()
        offsets, first, end, warnings = whereabouts(history, kafka, move)
    conversion = to_spark(history, move.open_batch, offsets)
    conversion = replace(conversion, warnings=warnings)
    conversion = _checked(history, conversion, first, end)
    return write_moved(move, files, before, history, conversion, lambda: None)


def checkpoint_offsets(move: Move) -> tuple[Offsets, tuple[str, ...]]:
    """Return where the query of a checkpoint of either source continues, and warnings.

    Args:
        move: The checkpoint; for one of this package also the brokers and the group.

    Raises:
        CheckpointError: The checkpoint does not have the offsets.
        KafkaError: The brokers cannot be reached.
    """
    files = CheckpointFiles(move.source)
    history = read_history(files.location, files.store)
    batch = history.open_batch
    opened = (
        ()
        if batch is None
        else (
            f"batch {batch} is open: the offsets are those where it begins, and it is read again",
        )
    )
    if history.origin == "spark":
        return starts_of(history, None, {}), opened
    if not move.bootstrap_servers:
        raise CheckpointError(
            f"{history.location} is kohort's, and where its query goes on is in Kafka too: give "
            "--bootstrap-servers, and --group if it has one"
        )
    with Kafka(move.bootstrap_servers, move.group_id, move.client) as kafka:
        offsets, _, _, warnings = whereabouts(history, kafka, move)
    return offsets, (*opened, *warnings)


def group_starts(
    bootstrap_servers: str,
    group_id: str,
    topics: Iterable[str],
    missing: int | None,
    client: Mapping[str, str],
) -> Offsets:
    """Return a group's offsets for all partitions of its topics.

    Args:
        bootstrap_servers: The brokers.
        group_id: The group.
        topics: The topics; none: all topics with offsets.
        missing: The offset for partitions without one: -2 earliest, -1 latest, None: fail.
        client: Other settings of clients, by Kafka's own names.

    Raises:
        CheckpointError: The group has no offsets, or none for a partition.
        KafkaError: The brokers cannot be reached.
    """
    with Kafka(bootstrap_servers, group_id, client) as kafka:
        return kafka.group_starts(frozenset(topics), missing)


def whereabouts(
    history: History, kafka: Kafka, move: Move
) -> tuple[Offsets, Offsets, Offsets, tuple[str, ...]]:
    """Return where a query of this package continues, the bounds of the logs, and warnings.

    Args:
        history: Its checkpoint.
        kafka: The brokers.
        move: The request.

    Raises:
        CheckpointError: The position is unknown, group and checkpoint disagree, or a topic was
            deleted and recreated.
    """
    last = history.manifest(max(history.entries))
    _check_group_named(history, last, move)
    topics = kafka.topics({*last.topics, *(place.topic for place in last.ranges)})
    _check_not_remade(history, last, topics)
    group = kafka.offsets(topics)
    counts = {name: topic.count for name, topic in topics.items()}
    wanted = wanted_of(history, counts)
    first, end = kafka.logs(wanted)
    starts = placed(history, wanted, group, move.positions, int(time.time() * 1000))
    conflicts = sorted(place for place, start in starts.items() if start.is_conflict)
    if conflicts and move.positions is None:
        raise CheckpointError(
            f"{starts[conflicts[0]].warning}. This holds for {len(conflicts)} partitions: choose "
            "--positions group or --positions checkpoint"
        )
    warnings = tuple(start.warning for _, start in sorted(starts.items()) if start.warning)
    return positions_of(history, starts, group, first), first, end, warnings


def _check_group_named(history: History, last: Manifest, move: Move) -> None:
    if move.group_id is None and not (last.epoch < 0 and last.ranges):
        raise CheckpointError(
            f"{history.location} is one of a member of a group, which has read a part of the "
            "partitions: name the group with --group, as its offsets say how far the others are"
        )


def _check_not_remade(history: History, last: Manifest, topics: Mapping[str, Topic]) -> None:
    for name, topic in last.topics.items():
        if topic.topic_id and topics[name].topic_id not in ("", topic.topic_id):
            raise CheckpointError(
                f"topic {name} was deleted and recreated since {history.location} was written (its "
                f"id was {topic.topic_id} and is {topics[name].topic_id}), so its offsets mean "
                "nothing. Start with a new checkpointLocation"
            )


def _at_rest(move: Move, origin: Origin) -> tuple[CheckpointFiles, Look, History]:
    """Return the history of a checkpoint to which no query writes.

    Raises:
        CheckpointError: It belongs to the other source, or a query writes to it.
    """
    files = CheckpointFiles(move.source)
    if move.target is not None:
        files.check_copy(CheckpointFiles(move.target))
    before = files.watch(move.quiet_s)  # first: a half-written file looks like an error
    history = read_history(files.location, files.store)
    if history.origin != origin:
        command = "export-checkpoint" if origin == "spark" else "import-checkpoint"
        whose = "already kohort's" if origin == "spark" else "one of Spark's own source"
        raise CheckpointError(
            f"{history.location} is {whose}; the reverse is kohort spark {command}"
        )
    return files, before, history


def _existing(history: History, last: Offsets, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return the partitions of the last batch, if all of them exist.

    Raises:
        CheckpointError: The topic has fewer partitions, so it is a different one.
    """
    for place in sorted(last):
        if place.partition >= topics[place.topic].count:
            raise CheckpointError(
                f"{history.location} has {place.topic}-{place.partition}, and {place.topic} has "
                f"{topics[place.topic].count} partitions: it was deleted and recreated, or the "
                "brokers are others. Start with a new checkpointLocation"
            )
    return list(last)


def _checked(history: History, conversion: Conversion, first: Offsets, end: Offsets) -> Conversion:
    """Warn about records that are gone.

    Raises:
        CheckpointError: A position is beyond the end of its log: the topic is a different one.
    """
    warnings = list(conversion.warnings)
    for place, at in sorted(conversion.positions.items()):
        name = f"{place.topic}-{place.partition}"
        if at > end[place]:
            raise CheckpointError(
                f"{history.location} has read {name} up to {at}, and it ends at {end[place]}: the "
                "topic was deleted and recreated, its log was cut, or the brokers are others. "
                "Start with a new checkpointLocation"
            )
        if at < first[place]:
            warnings.append(
                f"{name} begins at {first[place]}, and the query continues from {at}: records in "
                "between were deleted unread; failOnDataLoss decides what the query does"
            )
    return replace(conversion, warnings=tuple(warnings))


def write_moved(
    move: Move,
    files: CheckpointFiles,
    before: Look,
    history: History,
    conversion: Conversion,
    tell: Callable[[], None],
) -> Moved:
    """Write the new checkpoint, then commit to the group.

    Args:
        move: The request.
        files: The checkpoint.
        before: The earlier snapshot of the files.
        history: Its contents then.
        conversion: The files to write.
        tell: Commits to the group.

    Raises:
        CheckpointError: One of the two steps failed; the message describes the resulting state.
    """
    files.refuse_change(before)
    backup = files.back_up() if move.target is None else None
    target = files if move.target is None else CheckpointFiles(move.target)
    try:
        if backup is None:
            files.copy_to(target, conversion.files)
        files.refuse_change(before)
        if backup is not None:
            files.change(conversion.files)
        tell()
    except (CheckpointError, KafkaError, OSError) as error:
        raise CheckpointError(
            f"{error}. So {target.location} is half converted, or the group does not know of it: "
            + (f"put the original back from {backup.location}" if backup else "remove it")
            + " before you try again"
        ) from error
    return Moved(
        checkpoint=target.location,
        backup=backup.location if backup else None,
        batch=history.finished,
        open_batch=history.open_batch,
        offsets=conversion.positions,
        warnings=conversion.warnings,
    )
