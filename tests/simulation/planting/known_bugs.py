"""Bugs that other coordinators and clients really had, most of them by the name of the report.

This file has the bugs of B1-B3 and U3-U7 in our list that are in no other file; docs/simulation.md
has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast
from unittest.mock import patch
from uuid import UUID

from kohort.errors import KohortError
from kohort.group.assignors import ClusterView, CooperativeStickyAssignor, RangeAssignor
from kohort.group.coordinator.consumer.state.group import Member
from kohort.group.coordinator.shard import Lifecycle, Shard
from kohort.group.coordinator.state import LogState
from kohort.group.effects import Callback, Send
from kohort.group.events import GroupEvent
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.events import JobDone
from kohort.group.subscription import Subscription, decode_subscription, encode_subscription
from kohort.simulation.coverage import AnyRow, AnyTable, substituted
from kohort.simulation.groups.application import Application, Offsets
from kohort.simulation.groups.protocols import MIGRATION
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group_records import (
    KINDS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.membership import JoinGroupRequest
from tests.simulation.planting.bug import BUGS, AnyHandler, Bug, Plant, bug, ignored

_COOP = "cooperative"

# -------------------------------------------------------------------------------- loading the log

# Whether a coordinator cannot go on with a record, given what it has read so far.
_Refuses: TypeAlias = Callable[[LogState, GroupRecord], bool]
_CONSUMER_KEYS = tuple(key for key, _ in KINDS)


def _fails_to_load(make: Callable[[], _Refuses]) -> Plant:
    """Plant: a shard that reads such a record while loading is never ready, like Kafka's FAILED."""

    @contextmanager
    def plant() -> Iterator[None]:
        apply, finish = Shard.apply, Shard.load_finished
        checks: dict[Shard, _Refuses] = {}
        failed: set[Shard] = set()

        def read(shard: Shard, record: GroupRecord) -> None:
            if shard.state is Lifecycle.CATCH_UP:
                refuses = checks.setdefault(shard, make())
                if refuses(shard.log, record):
                    failed.add(shard)
            apply(shard, record)

        def ready(shard: Shard, now: int) -> tuple[GroupEvent, ...]:
            return () if shard in failed else finish(shard, now)

        with patch.object(Shard, "apply", read), patch.object(Shard, "load_finished", ready):
            yield

    return plant


def _met_twice() -> _Refuses:
    """A map from partitions to members that raises at a contradiction (KAFKA-19862)."""
    epochs: dict[tuple[UUID, int], int] = {}

    def refuses(log: LogState, record: GroupRecord) -> bool:
        key, value = record.key, record.value
        if not isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            return False
        group = log.consumer_groups.get(key.group_id)
        before = group.members.get(key.member_id) if group is not None else None
        wrong = False
        for each in _had_by(before):
            wrong |= before is not None and epochs.pop(each, None) != before.epoch
        if not isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            return wrong
        for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
            for number in topic.partitions:
                wrong |= epochs.get((topic.topic_id, number), -1) >= value.member_epoch
                epochs[topic.topic_id, number] = value.member_epoch
        return wrong

    return refuses


def _had_by(member: Member | None) -> list[tuple[UUID, int]]:
    owned = (member.assigned, member.revoking) if member is not None else ()
    return [(topic, number) for each in owned for topic in each for number in each[topic]]


def _is_of_nothing(log: LogState, record: GroupRecord) -> bool:
    """A tombstone of a group or a member that does not exist (KAFKA-17306)."""
    key = record.key
    if record.value is not None or not isinstance(key, _CONSUMER_KEYS):
        return False
    group = log.consumer_groups.get(key.group_id)
    member_id = getattr(key, "member_id", None)
    return group is None or (member_id is not None and member_id not in group.members)


def _is_of_the_other_kind(log: LogState, record: GroupRecord) -> bool:
    """A consumer group's record where a classic group is (KAFKA-21117)."""
    return isinstance(record.key, _CONSUMER_KEYS) and record.key.group_id in log.groups


def _follows_offsets(log: LogState, record: GroupRecord) -> bool:
    """A consumer group's record where positions have made a group already (KAFKA-20254)."""
    key = record.key
    if not isinstance(key, _CONSUMER_KEYS) or record.value is None:
        return False
    return key.group_id in log.offsets and key.group_id not in log.consumer_groups


# ------------------------------------------------------------------------------------- the members


def _in_every_row(table: object, spoil: AnyHandler) -> Plant:
    """Plant: break something after each action of a machine."""

    def spoilt(line: AnyRow) -> AnyRow:
        handler = line.handler

        def both(decision: Any, event: Any) -> None:
            handler(decision, event)
            spoil(decision, event)

        return replace(line, handler=both)

    found = cast("AnyTable", table)
    return lambda: substituted(found, [spoilt(line) for line in found.rows])


def _claim_nothing(decision: Any, _event: object) -> None:
    decision.sends = [_without_claims(send) for send in decision.sends]


def _without_claims(send: Send) -> Send:
    request = send.request
    if not isinstance(request, JoinGroupRequest):
        return send
    protocols = tuple(
        replace(
            each,
            metadata=encode_subscription(
                replace(decode_subscription(each.metadata), owned=frozenset(), generation=-1)
            ),
        )
        for each in request.protocols
    )
    return replace(send, request=replace(request, protocols=protocols))


class Restless(CooperativeStickyAssignor):
    """Rotates all assignments in every generation, so that no round is the last one."""

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Assign, then rotate; partitions that move are withheld first."""
        members = sorted(subscriptions)
        turn = max(entry.generation for entry in subscriptions.values()) % len(members)
        places = dict(zip(members, [*members[turn:], *members[:turn]], strict=True))
        wanted = {member: subscriptions[places[member]] for member in members}
        made = RangeAssignor().assign(cluster, wanted)
        return _withheld({places[member]: made[member] for member in members}, subscriptions)


def _withheld(
    made: Mapping[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """Remove partitions that another member still has (KIP-429)."""
    owners = {each: member for member, entry in subscriptions.items() for each in entry.owned}
    return {
        member: [each for each in given if owners.get(each, member) == member]
        for member, given in made.items()
    }


# -------------------------------------------------------------------------------- the applications


class StallsAfterFailedCommit(Application):
    """Never finishes a revocation whose commit has failed."""

    def _listen_after(self, stored: bool) -> None:
        if stored:
            super()._listen_after(stored)


class HangsInCommit(Application):
    """Waits for ever for a commit that should be sent again."""

    def _commit_again(self, offsets: Offsets, done: Callable[[bool], None], until: int) -> None:
        """Wait, and do not send it."""


class AsksOnce(Application):
    """Never asks again for a position without an answer, though its heartbeats succeed."""

    def _found(self, lives: dict[TopicPartition, int], response: Message | None) -> None:
        super()._found(lives, response)
        self._fetching |= {each for each in lives if self.positions.get(each) is None}


class StandsStill(Application):
    """Ignores that its member cannot go on, and keeps its process."""

    def news(self, callbacks: tuple[Callback, ...], _raised: tuple[KohortError, ...]) -> None:
        """Listen to calls only."""
        super().news(callbacks, ())


# ----------------------------------------------------------------------------------------- the bugs


def _app(name: str, text: str, application: type[Application], protocol: str = "classic") -> None:
    BUGS.append(Bug(name=name, text=text, application=application, protocol=protocol))


def _plant_loading() -> None:
    loads = (
        (
            "KAFKA-19862",
            "a partition is met twice in a log that is compacted",
            _met_twice,
            "consumer",
        ),
        ("KAFKA-17306", "a tombstone is of nothing", lambda: _is_of_nothing, "consumer"),
        (
            "KAFKA-21117",
            "a classic group is there already",
            lambda: _is_of_the_other_kind,
            MIGRATION,
        ),
        ("KAFKA-20254", "positions come before their group", lambda: _follows_offsets, "consumer"),
    )
    for name, text, make, protocol in loads:
        bug(name, f"a coordinator cannot load: {text}", _fails_to_load(make), protocol)


def _plant_members() -> None:
    bug(
        "librdkafka #4783",
        "the leader's assignor never comes to an end (U3)",
        ignored(CLASSIC_MEMBER, JobDone, "hand_over"),
        _COOP,
    )
    BUGS.append(
        Bug(
            name="confluent-kafka-python #1090",
            text="each assignment moves something, so the group rebalances for ever (U3)",
            assignors={Restless.name: Restless()},
            protocol=_COOP,
        )
    )
    bug(
        "librdkafka #3306",
        "a member does not claim its partitions, and others get them while it reads on (U3)",
        _in_every_row(CLASSIC_MEMBER, _claim_nothing),
        _COOP,
    )
    _app(
        "librdkafka #2933",
        "a revocation whose commit failed never ends (U3)",
        StallsAfterFailedCommit,
        _COOP,
    )
    _app("kafka-python #1728", "a commit that has to be repeated never ends (U5)", HangsInCommit)
    _app("kafka-python #1590", "a partition is owned, but not read (U5)", AsksOnce)
    _app(
        "node-rdkafka #1146",
        "a position without an answer is never asked for again (U6)",
        AsksOnce,
        "consumer",
    )
    _app(
        "refused and silent (consumer)",
        "UNRELEASED_INSTANCE_ID ends a member without an error (U7)",
        StandsStill,
        "consumer",
    )


def plant_all() -> None:
    """Register the bugs of this file."""
    _plant_loading()
    _plant_members()
