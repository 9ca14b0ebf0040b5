"""The topics of a query, where it starts in them, and whether its records still exist.

It queries the brokers on Spark's thread, between batches; `start_positions.py` interprets their
answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING

from kohort.errors import MAY_BE_HIDDEN, ErrorCode, KafkaError, KohortError
from kohort.spark.checkpoint.manifest import Manifest, Range, trim
from kohort.spark.options.source import OptionError, SourceOptions
from kohort.spark.source.group_offsets import GroupOffsets, Topic, group_offsets
from kohort.spark.source.lookup import DataLossError, Lookup
from kohort.spark.source.start_positions import Disagreement, Known, Origin, Start, shown_choices
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer.api import Consumer
    from kohort.spark.source.member import SourceMember

log = logging.getLogger("kohort.spark")

# Spark polls an idle query about every 12 ms; the brokers are queried less often.
MAX_AGE_S = 0.1
# A broker that has just started may not know a topic yet.
MISSING_GRACE_S = 5.0


class PositionConflictError(KohortError, RuntimeError):
    """Group and checkpoint disagree, and `positions=fail` leaves the choice to the operator."""


class TopicsChangedError(KohortError):
    """Partitions disappeared during a request about them: start over without them."""


class PositionResolver:
    """Finds the starts of partitions, and detects lost records.

    Args:
        options: The query's options.
        consumer: Queries the brokers.
        lookup: Resolves `startingOffsets`.
    """

    def __init__(self, options: SourceOptions, consumer: Consumer, lookup: Lookup) -> None:
        self._options = options
        self._consumer = consumer
        self._lookup = lookup
        lookup.look_again = self._look_again
        self._topics: dict[str, Topic] = {}
        self._partitions: frozenset[TopicPartition] | None = None
        self._asked_at = float("-inf")
        self._missing_since: dict[str, float] = {}
        # The topics that this query has read, as of the last finished batch.
        self._counts: dict[str, int] = {}
        self._before: dict[str, Topic] = {}
        self._remade: set[str] = set()
        self._learned: Manifest | None = None
        # Whether a partition was placed, according to the checkpoint and this run.
        self._has_placed = False
        # Starts of partitions that were not assigned at the query's first batch.
        self._firsts: dict[TopicPartition, int] = {}
        # The group's offsets from which a batch was replayed.
        self._resumed: dict[TopicPartition, int] = {}
        # Read from the beginning, regardless of the group's offsets.
        self._anew: set[TopicPartition] = set()
        # Partitions added while this query runs, until a query starts to read them.
        self._added: set[TopicPartition] = set()
        # Partitions named by the checkpoint or placed by this run, and whether the checkpoint named
        # any when the run began: if not, the query simply continues from the group's offsets.
        self._named: set[TopicPartition] = set()
        self._continues = False
        self._lost_partitions = 0
        # Group offsets that were already reported; a partition may come and go.
        self._told: set[tuple[TopicPartition, int]] = set()

    @property
    def wanted(self) -> str:
        """The topics or partitions that the query reads, for messages."""
        return self._lookup.wanted

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The subscribed topics as of the brokers' last answer."""
        return self._topics

    def partitions(self) -> frozenset[TopicPartition]:
        """Return all partitions that the query and the other members of its group read."""
        if self._partitions is None:
            counts = {name: topic.count for name, topic in self._topics.items()}
            self._partitions = self._lookup.partitions(counts)
        return self._partitions

    # ----------------------------------------------------------------------------------- the topics

    def learn(self, batch: Manifest) -> None:
        """Adopt the topics of the checkpoint.

        Raises:
            DataLossError: A topic was recreated since, and `failOnDataLoss` is true.
        """
        if batch == self._learned:  # idle triggers pass the last batch again
            return
        if self._learned is None:
            self._continues = bool(batch.ranges)
        self._learned = batch
        for name, topic in batch.topics.items():
            self._compare(name, topic)
        self._await_topics(batch.topics)
        for name, number in batch.ranges:
            self._count(name, number + 1)
        for name, topic in batch.topics.items():
            self._count(name, topic.count)
        self._has_placed = self._has_placed or bool(batch.ranges)
        self._named |= {place for place in batch.ranges if place.topic not in self._remade}
        for place, first in batch.firsts.items():
            if place.topic not in self._remade:
                self._firsts[place] = first

    def _await_topics(self, known: Iterable[str]) -> None:
        """Wait a while for missing topics of the checkpoint: deleted, or not known yet.

        Raises:
            DataLossError: A topic is gone, and `failOnDataLoss` is true.
        """
        pause = threading.Event()
        missing = self._lookup.selected(known) - self._topics.keys()
        for name in missing:
            self._missing_since.setdefault(name, time.monotonic())
        while self._is_missing(missing):
            pause.wait(MAX_AGE_S)
            self.refresh()

    def _is_missing(self, names: Iterable[str]) -> bool:
        """Whether topics are missing that may still appear."""
        return any(self._missing_since.get(name, inf) < inf for name in names)

    def _compare(self, name: str, before: Topic) -> None:
        now = self._topics.get(name, Topic("", 0))
        is_other = before.topic_id and now.topic_id and before.topic_id != now.topic_id
        if is_other and name not in self._remade:
            self._remade.add(name)
            self._counts[name] = 0  # all of its partitions are new
            self._firsts = {p: first for p, first in self._firsts.items() if p.topic != name}
            self._named = {place for place in self._named if place.topic != name}
            self._lookup.forget_ends()
            self._data_loss(
                f"topic {name} was deleted and recreated: its id was {before.topic_id} and is "
                f"{now.topic_id}{_fewer(before, now)}",
                "the new topic is read from its beginning",
            )

    def _count(self, name: str, count: int) -> None:
        if name not in self._remade:
            self._counts[name] = max(count, self._counts.get(name, 0))

    def take_remade(self) -> frozenset[str]:
        """Return the topics recreated since the last call; positions in them are void."""
        taken = frozenset(self._remade)
        self._remade.clear()
        return taken

    @property
    def age_s(self) -> float:
        """The age of the brokers' last answer about the topics, in seconds."""
        return time.monotonic() - self._asked_at

    def refresh(self, max_age_s: float = MAX_AGE_S) -> None:
        """Request the topics, unless the last request is less than `max_age_s` seconds old.

        Raises:
            DataLossError: A topic is gone or was recreated, and `failOnDataLoss` is true.
            KafkaError: No topic exists, or no broker answers.
        """
        now = time.monotonic()
        if now - self._asked_at < max_age_s:
            return
        found = self._lookup.describe()
        self._asked_at = now
        self._note_missing(found, now)
        before = {**self._before, **self._topics}
        if found != self._topics:
            self._partitions = None
        self._topics = found
        if not (found or self._missing_since or self._options.pattern):
            text = f"{self._lookup.wanted}: the topic does not exist, {MAY_BE_HIDDEN}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        for name, topic in before.items():
            self._compare(name, topic)
            count = found.get(name, topic).count
            self._added |= {TopicPartition(name, each) for each in range(topic.count, count)}
        self._before = {**before, **found}

    def _look_again(self, places: Iterable[TopicPartition]) -> None:
        """Check whether partitions exist after the brokers did not answer for them.

        Raises:
            DataLossError: A topic is gone or was recreated, and `failOnDataLoss` is true.
            TopicsChangedError: They no longer exist, or have changed.
        """
        self.refresh(max_age_s=0)
        if self._remade or not self.partitions().issuperset(places):
            raise TopicsChangedError("topics have changed during a request about them")

    def _note_missing(self, found: Mapping[str, Topic], now: float) -> None:
        for name in self._topics.keys() - found.keys():
            self._missing_since.setdefault(name, now)
        for name in self._missing_since.keys() & found.keys():
            del self._missing_since[name]
        for name, since in self._missing_since.items():
            if now - since > MISSING_GRACE_S:
                self._missing_since[name] = inf  # reported once
                self._data_loss(f"topic {name} no longer exists", "nothing is read from it")

    def _data_loss(self, what: str, remedy: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Records may be lost. Set failOnDataLoss to false to continue: {remedy}"
            )
        log.warning("%s; failOnDataLoss is false: %s", what, remedy)

    # ------------------------------------------------------------------------------ where to start

    def place(self, member: SourceMember) -> None:
        """Set the positions of newly assigned partitions.

        Raises:
            DataLossError: The next records to read are gone.
            PositionConflictError: Group and checkpoint disagree, with `positions=fail`.
        """
        epoch, unplaced = member.unplaced()
        unplaced = frozenset(place for place in unplaced if place in self.partitions())
        if not unplaced:
            return
        group = self.group()
        # Request the topics after the offsets: deleting a topic also deletes its offsets, so an
        # offset that seems to have expired may belong to a topic that was just recreated.
        self.refresh(max_age_s=0)
        if self._remade:
            return  # the next trigger places them, once the old positions are discarded
        unplaced &= self.partitions()
        self._added -= group.offsets.keys()
        known = self._known(group, member, epoch)
        starts = {
            place: Start(Origin.EARLIEST) if place in self._anew else known.start(place)
            for place in unplaced
        }
        conflicts = [p for p in sorted(unplaced) if starts[p].is_conflict]
        self._refuse([known.disagreement(place) for place in conflicts])
        for place in sorted(unplaced):
            self._tell(place, starts[place], group.offsets.get(place))
        origins = {place: start.origin for place, start in starts.items()}
        positions = self._positions(origins, known)
        fresh = [p for p, o in origins.items() if o not in (Origin.GROUP, Origin.CHECKPOINT)]
        began = epoch if group.began is None else group.began
        member.place(epoch, positions, group.offsets, fresh, began)
        self._named |= member.positions().keys()  # not those that have advanced meanwhile
        self._anew -= unplaced
        self._added -= unplaced
        self._has_placed = True
        for name, topic in self._topics.items():
            self._counts.setdefault(name, topic.count)

    def firsts(self, member: SourceMember) -> dict[TopicPartition, int]:
        """Return the starts of partitions that may be assigned after the query's first batch.

        Records that arrive until then must be read. Partitions that the group has already begun are
        left out: the group has offsets or notes for them.
        """
        places = self.partitions() - member.positions().keys()
        late = [place for place in places if self._lookup.starts_at_latest(place)]
        if not late:
            return {}
        group, (epoch, _) = self.group(), member.unplaced()
        known = self._known(group, member, epoch)
        late = [place for place in late if known.start(place).origin is Origin.STARTING]
        return self._lookup.starting(late, "latest") if late else {}

    def group(self) -> GroupOffsets:
        """Return the group's committed offsets of the subscribed topics."""
        if self._options.group_mode == "none":
            return GroupOffsets()
        return group_offsets(self._consumer.committed(*self.partitions()), self._topics)

    def _known(self, group: GroupOffsets, member: SourceMember, epoch: int) -> Known:
        ends = {p: end for p, end in member.finished().items() if p.topic in self._topics}
        return Known(
            group=group,
            nonce=member.nonce,
            ends=ends,
            counts=self._counts,
            has_placed=self._has_placed,
            firsts=self._firsts,
            resumed=self._resumed,
            epoch=epoch,
            now_ms=int(time.time() * 1000),
            policy=self._options.positions,
            batch=0 if self._learned is None else self._learned.batch,
            is_alone=self._is_alone,
            added=frozenset(self._added),
            unnamed=self.partitions() - self._named if self._continues else frozenset(),
        )

    @property
    def _is_alone(self) -> bool:
        return self._options.exclusive or self._options.group_mode == "commitOnly"

    def _positions(
        self, origins: Mapping[TopicPartition, Origin], known: Known
    ) -> dict[TopicPartition, int]:
        of: dict[Origin, list[TopicPartition]] = {origin: [] for origin in Origin}
        for place, origin in origins.items():
            of[origin].append(place)
        return {
            **{place: known.group.offsets[place] for place in of[Origin.GROUP]},
            **{place: known.ends[place] for place in of[Origin.CHECKPOINT]},
            **{place: known.firsts[place] for place in of[Origin.FIRST]},
            **self._lookup.begins(of[Origin.EARLIEST]),
            **self._starting(of[Origin.STARTING]),
        }

    def _starting(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the starts given by the options; offsets outside the logs are not committed.

        Raises:
            OptionError: `startingOffsets` is outside a log, and `failOnDataLoss` is true.
        """
        if not places:
            return {}
        starts = self._lookup.starting(places, "latest")
        if not isinstance(self._options.starting_offsets, Mapping):
            return starts
        logs = self._lookup.logs(places)
        for place, start in sorted(starts.items()):
            first, last = logs[place]
            if not first <= start <= last:
                starts[place] = self._start_beside_the_log(place, start, first, last)
        return starts

    def _start_beside_the_log(
        self, place: TopicPartition, start: int, first: int, last: int
    ) -> int:
        what = (
            f"{place.topic}-{place.partition} holds offsets {first} to {last}, and startingOffsets "
            f"is {start}"
        )
        if self._options.fail_on_data_loss:
            raise OptionError(
                f"{what}. Nothing was read and nothing committed. Change startingOffsets, or set "
                "failOnDataLoss to false to start at the beginning of the partition"
            )
        log.warning("%s; failOnDataLoss is false: it is read from its beginning", what)
        return first

    def _refuse(self, found: list[Disagreement]) -> None:
        """Leave the choice to the operator, with `positions=fail`.

        Raises:
            PositionConflictError: Group and checkpoint disagree.
        """
        if found and self._options.positions == "fail":
            raise PositionConflictError(
                "positions is fail, and the group's offset and the checkpoint's disagree in "
                f"{len(found)} of the partitions: {shown_choices(found)}. Set positions to group "
                "or to checkpoint for one start"
            )

    def _tell(self, place: TopicPartition, start: Start, offset: int | None) -> None:
        """Log the message of a start, once per group offset."""
        if (start.warning or start.notice) and offset is not None:
            if (place, offset) in self._told:
                return
            self._told.add((place, offset))
        if start.warning:
            log.warning("%s", start.warning)
        elif start.notice:
            log.info("%s", start.notice)

    # ------------------------------------------------------------------------------ records to read

    def replayed(self, batch: Manifest) -> dict[TopicPartition, Range]:
        """Return the ranges left to read of a batch that Spark replays.

        Offsets that the group has committed since are left out: another query has finished them, or
        an operator skipped them. If this query itself has finished them, its checkpoint is an older
        copy, see `Known.is_read_again`.

        Raises:
            DataLossError: It reads a topic that was recreated, and `failOnDataLoss` is true.
            PositionConflictError: The group is not where the batch begins, and no lost commit
                PositionConflictError: The group is not where the batch begins, and no lost commit
                explains that, with `positions=fail`.
        """
        self.refresh()
        ranges = trim(batch.ranges, {})
        for name in {place.topic for place in ranges}:
            before, now = batch.topics.get(name), self._topics.get(name)
            if before and now and before.topic_id and now.topic_id not in ("", before.topic_id):
                ranges = {place: at for place, at in ranges.items() if place.topic != name}
        if self._options.positions == "checkpoint":
            return ranges
        group = self.group()
        offsets = group.offsets
        self._resumed = {p: offsets[p] for p, at in ranges.items() if offsets.get(p, -1) >= at[0]}
        again = self._read_again(batch, ranges, group)
        return trim(ranges, {p: offset for p, offset in offsets.items() if p not in again})

    def _read_again(
        self, batch: Manifest, ranges: Mapping[TopicPartition, Range], group: GroupOffsets
    ) -> frozenset[TopicPartition]:
        """Return the partitions of a replayed batch to read completely, regardless of the group.

        The batch begins where the checkpoint's last finished batch ends, so a different group
        offset disagrees with the checkpoint, as it does when no batch is open.

        Raises:
            PositionConflictError: They disagree, with `positions=fail`.
        """
        known = Known(
            group=group,
            nonce=batch.nonce,
            ends={place: start for place, (start, _) in ranges.items()},
            batch=batch.batch - 1,
            is_alone=self._is_alone,
            policy=self._options.positions,
        )
        starts = {place: known.start(place) for place in sorted(ranges.keys() & group.offsets)}
        self._refuse([known.disagreement(p) for p, each in starts.items() if each.is_conflict])
        for place, start in starts.items():
            self._tell(place, start, group.offsets[place])
        return frozenset(p for p, each in starts.items() if each.origin is Origin.CHECKPOINT)

    def check(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        """Return the partitions whose next record is gone; they are read from the beginning.

        Raises:
            DataLossError: There are any, and `failOnDataLoss` is true.
        """
        asked = [place for place in positions.keys() & ends if positions[place] != ends[place]]
        first = self._lookup.begins(asked)
        gone = [p for p in asked if not first[p] <= positions[p] <= ends[p]]
        for place in sorted(gone):
            self._lost_partitions += 1
            name = f"{place.topic}-{place.partition}"
            self._data_loss(
                f"{name} holds offsets {first[place]} to {ends[place]}, and the next to read is "
                f"{positions[place]}: records were deleted before they were read, the log was cut, "
                "or another program has set the group's offset there (kafka-consumer-groups "
                "--reset-offsets sets another)",
                f"{_lost(positions[place], first[place], ends[place])}{name} is read from its "
                f"beginning, offset {first[place]} (loss {self._lost_partitions} of this query)",
            )
        self._anew.update(gone)
        return frozenset(gone)

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of existing partitions."""
        there = frozenset(partitions) & self.partitions()
        return self._lookup.ends(there)


def _lost(position: int, first: int, end: int) -> str:
    """Return a message with the number of skipped offsets, if known."""
    if position < first:
        return f"{first - position} records at most (offsets {position} to {first - 1}) are lost; "
    return f"any records at offsets {end} to {position - 1} are lost; "


def _fewer(before: Topic, now: Topic) -> str:
    """Return the message that a topic has lost partitions; empty if it has not."""
    is_fewer = now.count < before.count
    return f", and it had {before.count} partitions and has {now.count}" if is_fewer else ""
