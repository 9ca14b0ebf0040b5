"""The topics of a stream application: those that it reads, and its internal ones.

An instance refuses to start if state would be lost later: if a changelog is not compacted, has a
different number of partitions, or is gone although the application has run before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from msgspec import Struct

from kohort.client.admin.aio import AsyncAdminClient, partitions_and_policy
from kohort.client.admin.values import NewTopic
from kohort.errors import ErrorCode, KafkaError, PartialFailureError
from kohort.streams.errors import (
    InternalTopicError,
    MissingTopicError,
    NotCoPartitionedError,
    StreamsError,
)
from kohort.streams.runtime.interface import Application
from kohort.types import TopicPartition

log = logging.getLogger("kohort.streams")

_COMPACT: Mapping[str, str] = {"cleanup.policy": "compact"}
# Processed records are no longer needed, but no record may be deleted before that.
_KEEP: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1"}
_ANY: Mapping[str, str] = {"cleanup.policy": "delete"}


class InternalTopic(Struct, frozen=True, kw_only=True):
    """A topic that an application creates for internal use.

    Attributes:
        name: Its name.
        partitions: The required number of partitions.
        is_compacted: Whether it keeps the last record of each key; otherwise it keeps every record.
        has_state: Whether recreating it loses state.
        is_checked: Whether to check an existing topic.
    """

    name: str
    partitions: int
    is_compacted: bool = True
    has_state: bool = False
    is_checked: bool = True

    @property
    def configs(self) -> Mapping[str, str]:
        """Its settings."""
        if not self.is_checked:
            return _ANY
        return _COMPACT if self.is_compacted else _KEEP


def control_topic(application: str) -> str:
    """Return the name of an application's control topic."""
    return f"{application}-control"


async def prepare(
    admin: AsyncAdminClient, application: Application, replication_factor: int
) -> dict[str, int]:
    """Check the topics that an application reads; create and check its internal ones.

    Args:
        admin: The admin client.
        application: The application.
        replication_factor: Replicas of created topics; -1: the broker's default.

    Returns:
        The number of partitions of each topic that is read.

    Raises:
        MissingTopicError: A topic to read or write is missing, or a changelog is missing after a
            commit.
        NotCoPartitionedError: Topics read by one part have different numbers of partitions.
        InternalTopicError: An internal topic is unsuitable for its data.
        KafkaError: The brokers cannot be reached, or refuse.
    """
    # Offsets first: if any are committed, the changelogs were created before.
    committed = await _committed(admin, application)
    present = await admin.list_topics()
    counts = await _inputs(admin, application, present)
    wanted = [*_repartitions(application, counts), *_changelogs(application, counts)]
    wanted.append(InternalTopic(name=control_topic(application.name), partitions=1))
    if application.dead_letters is not None:
        most = max(counts.values())
        letters = InternalTopic(name=application.dead_letters, partitions=most, is_checked=False)
        wanted.append(letters)
    _check_nothing_is_gone(application, wanted, present, committed)
    _warn_of_lost_records(application, present)
    await make(admin, wanted, present, replication_factor)
    return counts


async def _committed(admin: AsyncAdminClient, application: Application) -> frozenset[str]:
    try:
        offsets = await admin.list_group_offsets(application.name)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return frozenset()
    return frozenset(topic for topic, _ in offsets)


async def _inputs(
    admin: AsyncAdminClient, application: Application, present: frozenset[str]
) -> dict[str, int]:
    """Return the number of partitions of all topics to read, including those to create."""
    topics = application.topology.topics - application.repartitions.keys()
    missing = sorted(topics - present)
    if missing:
        raise MissingTopicError(
            f"{application.name} reads topics that do not exist: {', '.join(missing)}. Create them"
            " with as many partitions as the application should have tasks"
        )
    unwritable = sorted(application.outputs - application.repartitions.keys() - present)
    if unwritable:
        raise _unwritable(application.name, unwritable)
    described = await admin.describe_topics(sorted(topics)) if topics else {}
    counts = {topic: len(partitions) for topic, partitions in described.items()}
    if application.repartition_counts is not None:
        counts.update(application.repartition_counts(counts))
    for number, part in enumerate(application.topology.sub_topologies):
        found = {topic: counts[topic] for topic in part.topics if topic in counts}
        for topic in part.topics:
            if topic not in found:
                given = application.repartitions[topic]
                found[topic] = given or max(counts.get(each, 0) for each in part.topics)
        _check_copartitioned(application, number, found)
        counts.update(found)
    return counts


def _check_copartitioned(application: Application, number: int, found: Mapping[str, int]) -> None:
    if len(set(found.values())) == 1 and all(found.values()):
        return
    shown = ", ".join(f"{topic} has {count}" for topic, count in sorted(found.items()))
    raise NotCoPartitionedError(
        f"sub-topology {number} of {application.name} reads topics that must have the same number"
        f" of partitions: {shown}. Create them with equal numbers, or repartition one in the"
        " application"
    )


def unfit(
    application: Application, before: Mapping[str, int], now: Mapping[str, int]
) -> dict[int, StreamsError]:
    """Return the parts that cannot continue because their topics have changed, with the errors.

    Args:
        application: The application.
        before: The number of partitions of each topic when the instance started.
        now: The current number for each existing topic.
    """
    found: dict[int, StreamsError] = {}
    for number, part in enumerate(application.topology.sub_topologies):
        counts = {topic: now[topic] for topic in part.topics if topic in now}
        has_changed = any(count != before.get(topic) for topic, count in counts.items())
        if number in application.topology.stateless or not has_changed:
            continue
        try:
            _check_copartitioned(application, number, counts)
        except NotCoPartitionedError as error:
            found[number] = error
        else:
            found[number] = _grown(application, number, before, counts)
    return found


def unread(application: Application, now: Mapping[str, int]) -> list[str]:
    """Return the partitions that are not read because another topic of their part lacks them.

    Stateful parts are left out: they cannot continue at all.
    """
    return [
        f"{topic}-{number}"
        for part in application.topology.sub_topologies
        if not part.is_stateful
        for topic in part.topics
        for number in range(min(now.get(each, 0) for each in part.topics), now.get(topic, 0))
    ]


def _grown(
    application: Application, number: int, before: Mapping[str, int], now: Mapping[str, int]
) -> InternalTopicError:
    shown = ", ".join(f"{t} had {before.get(t)} and has {c}" for t, c in sorted(now.items()))
    return InternalTopicError(
        f"sub-topology {number} of {application.name} reads topics whose numbers of partitions have"
        f" changed while it ran: {shown}. Its state is divided as before, so keys would be looked"
        " up in the wrong task. Stop all instances and reset the application: kohort streams"
        f" reset {application.name}"
    )


def _repartitions(application: Application, counts: Mapping[str, int]) -> list[InternalTopic]:
    return [
        InternalTopic(name=topic, partitions=counts[topic], is_compacted=False)
        for topic in application.repartitions
    ]


def _changelogs(application: Application, counts: Mapping[str, int]) -> list[InternalTopic]:
    parts = application.topology.sub_topologies
    return [
        InternalTopic(name=topic, partitions=counts[parts[number].topics[0]], has_state=True)
        for number, topics in application.changelogs.items()
        for topic in topics
    ]


def _check_nothing_is_gone(
    application: Application,
    wanted: Iterable[InternalTopic],
    present: frozenset[str],
    committed: frozenset[str],
) -> None:
    """Refuse to recreate a changelog: it would be empty, while positions are far ahead."""
    parts = application.topology.sub_topologies
    begun = {n for n, part in enumerate(parts) if committed.intersection(part.topics)}
    names = {topic for number in begun for topic in application.changelogs.get(number, ())}
    gone = sorted(
        each.name
        for each in wanted
        if each.has_state and each.name in names and each.name not in present
    )
    control = control_topic(application.name)
    if gone and control not in present:
        raise MissingTopicError(
            f"group {application.name} has committed offsets, but neither {control} nor"
            f" {', '.join(gone)} exist. If the offsets are those of another consumer, which uses"
            " the name as its group.id, choose another name for the application. If its own topics"
            f" were deleted, reset it: kohort streams reset {application.name}"
        )
    if gone:
        raise _without_state(application.name, gone)


def _warn_of_lost_records(application: Application, present: frozenset[str]) -> None:
    """Warn about repartition topics that are missing although the application has run before."""
    fresh = sorted(application.repartitions.keys() - present)
    if fresh and control_topic(application.name) in present:
        log.warning(
            "%s has run before, and its repartition topics %s do not exist: they are created now."
            " If they were deleted, the records in them that were not processed are lost: stop all"
            " instances and reset the application: kohort streams reset %s",
            application.name,
            ", ".join(fresh),
            application.name,
        )


def missing(application: Application, gone: frozenset[str]) -> dict[int, StreamsError]:
    """Return the parts that cannot continue because topics they write are gone, with the errors.

    Args:
        application: The application.
        gone: Topics that do not exist.
    """
    letters = {application.dead_letters or ""}
    found: dict[int, StreamsError] = {}
    for number in range(len(application.topology.sub_topologies)):
        written = application.written.get(number, frozenset()) | letters
        if lost := gone.intersection(application.changelogs.get(number, ())):
            found[number] = _without_state(application.name, sorted(lost))
        elif between := gone & written & application.repartitions.keys():
            found[number] = _without_records(application.name, sorted(between))
        elif unwritable := gone & written:
            found[number] = _unwritable(application.name, sorted(unwritable))
    return found


def _without_state(application: str, gone: Iterable[str]) -> MissingTopicError:
    return MissingTopicError(
        f"changelogs of {application} are gone, and with them its state: {', '.join(gone)}. Stop"
        f" all instances and reset the application: kohort streams reset {application}"
    )


def _without_records(application: str, gone: Iterable[str]) -> MissingTopicError:
    return MissingTopicError(
        f"repartition topics of {application} are gone, and with them the records that were not"
        f" processed yet: {', '.join(gone)}. Stop all instances and reset the application: kohort"
        f" streams reset {application}"
    )


def _unwritable(application: str, gone: Iterable[str]) -> MissingTopicError:
    return MissingTopicError(
        f"{application} writes topics that do not exist: {', '.join(gone)}. Create them with the"
        " number of partitions that their readers need, and start the instances again"
    )


async def make(
    admin: AsyncAdminClient,
    wanted: Iterable[InternalTopic],
    present: frozenset[str],
    replication_factor: int,
) -> None:
    """Create missing topics, and check all; raises the errors of `prepare`."""
    topics = list(wanted)
    missing = [
        NewTopic(each.name, each.partitions, replication_factor, each.configs)
        for each in topics
        if each.name not in present
    ]
    if missing:
        try:
            await admin.create_topics(missing)
        except PartialFailureError as error:
            others = [e for e in error.errors.values() if not _exists(e)]
            if others:
                raise
        except KafkaError as error:
            if not _exists(error):  # another instance was faster
                raise
    await asyncio.gather(*(_check(admin, each) for each in topics if each.is_checked))


def _exists(error: object) -> bool:
    return isinstance(error, KafkaError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS


async def _check(admin: AsyncAdminClient, topic: InternalTopic) -> None:
    count, policy = await partitions_and_policy(admin, topic.name)
    if count != topic.partitions:
        raise InternalTopicError(
            f"{topic.name} has {count} partitions and must have {topic.partitions}, one for each"
            " task: keys would be looked up in the wrong task. If its input topics were given"
            " more partitions, reset the application (kohort streams reset). If the application"
            f" never wrote to it, delete {topic.name}: when a client reads a missing topic, the"
            " broker may create it (auto.create.topics.enable), with"
            " num.partitions"
        )
    wanted = topic.configs["cleanup.policy"]
    if policy != wanted:
        raise InternalTopicError(
            f"{topic.name} has cleanup.policy={policy} and must have {wanted}, or its records"
            f" are deleted while they are needed. Set it with kafka-configs.sh --alter --topic"
            f" {topic.name} --add-config cleanup.policy={wanted}"
        )


def partitions_of(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return all partitions of topics, in order."""
    return [TopicPartition(t, n) for t, count in sorted(counts.items()) for n in range(count)]
