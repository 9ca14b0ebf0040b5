"""A kind of group is one folder and one registration: here a fourth one, in a few lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator import services
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.decision import GroupDecision
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.kind import Answer, Api, Fold, Group, Hear, Kind, Serve
from kohort.group.coordinator.kinds import KINDS
from kohort.group.coordinator.records import GroupLog, GroupsPart, L
from kohort.group.coordinator.session import SessionState, ShardDecision
from kohort.group.coordinator.shard import Shard
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
)
from kohort.wire.messages.offsets import OffsetCommitRequest


class Open(NamedTuple):
    """A request of the new protocol: create a group with this name."""

    group_id: str


class Opened(NamedTuple):
    """The key of its only record."""

    group_id: str


class Record(NamedTuple):
    key: Any
    value: Any


class StandState(Enum):
    OPEN = "Open"


class Stand:
    """A group that consists of a name, and accepts offsets of any client."""

    state = StandState.OPEN
    may_expire = False

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def allowed(self, *_: object) -> None:
        """Reject nothing."""

    commit_error = transactional_commit_error = fetch_error = allowed
    deletion_error = offset_deletion_error = unused_since = allowed

    def is_subscribed_to(self, _topic: str) -> bool:
        return False

    def is_in(self, _log: GroupLog) -> bool:
        return True

    def tombstones(self) -> tuple[Any, ...]:
        return (Record(Opened(self.group_id), None),)

    def described(self, _log: GroupLog, _version: int) -> DescribedGroup:
        return DescribedGroup(
            error_code=0,
            group_id=self.group_id,
            group_state="Open",
            protocol_type="",
            protocol_data="",
            members=(),
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id, protocol_type="", group_state="Open", group_type="stand"
        )


class StandDecision(GroupDecision):
    @property
    def existing(self) -> Group:
        return Stand("s")


STANDS: GroupsPart[bool] = GroupsPart("stand")


def answered(code: ErrorCode) -> Any:
    return lambda _arrived: HeartbeatResponse(error_code=code)


def opened(shard: ShardDecision, group_id: str, event: Any) -> None:
    shard.records.append(Record(Opened(group_id), True))  # type: ignore[arg-type]  # no message
    shard.reply(event, HeartbeatResponse(error_code=ErrorCode.NONE))


def served(do: Any) -> Serve:
    def serve(shard: ShardDecision, _group_id: str, event: Any) -> None:
        session = shard.session
        decision = StandDecision("s", shard.config, shard.log, shard.now, 0, session.deadlines)
        do(decision, event)
        decision.hand_over(shard)

    return serve


def fold(log: L, record: Any) -> L:
    return STANDS.with_entry(log, record.key.group_id, record.value)


class StandKind:
    name = "stand"
    apis: Mapping[Any, Api] = {
        Open: Api(lambda _arrived: None, answered(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    }
    serves: Mapping[Any, Serve] = {
        Open: opened,
        OffsetCommitRequest: served(services.store),
        DeleteGroupsRequest: served(services.delete),
    }
    answers: Mapping[Any, Answer] = {}
    hears: Mapping[Any, Hear] = {}
    folds: Mapping[Any, Fold] = {Opened: fold}

    def lives(self, _session: SessionState, _group_id: str) -> bool:
        return False

    def has(self, _session: SessionState, log: GroupLog, group_id: str) -> bool:
        return group_id in STANDS.of(log)

    def ids(self, _session: SessionState, log: GroupLog) -> Collection[str]:
        return STANDS.of(log)

    def group(self, _session: SessionState, _log: GroupLog, group_id: str) -> Group:
        return Stand(group_id)

    def load(self, *_: object) -> None:
        """Start no sessions."""

    def unload(self, *_: object) -> None:
        """Answer no parked requests."""


class Counter:
    """A shard with the new kind, driven request by request."""

    def __init__(self) -> None:
        self.shard = Shard(CoordinatorConfig())
        self.shard.load_started()
        self.shard.load_finished(0)

    def get(self, request: Any, version: int = 5) -> Any:
        effects = self.shard.decide(RequestArrived(token=1, request=request, version=version), 0)
        for record in effects.records:
            self.shard.apply(record)
        self.shard.install(effects.session)
        return effects.replies[0].response


@pytest.fixture
def counter() -> Iterator[Counter]:
    kind: Kind = StandKind()
    with KINDS.also(kind):
        made = Counter()
        assert made.get(Open("s")).error_code == ErrorCode.NONE
        yield made


def test_its_own_request_makes_a_group_that_all_look_at_like_any_other(counter: Counter) -> None:
    (listed,) = counter.get(ListGroupsRequest()).groups
    assert (listed.group_id, listed.group_type) == ("s", "stand")
    (described,) = counter.get(DescribeGroupsRequest(groups=("s",))).groups
    assert described.group_state == "Open"


def test_its_groups_are_served_what_all_groups_are(counter: Counter) -> None:
    positions = {TopicPartition("t", 0): OffsetAndMetadata(7)}
    commit = commit_request("s", CommitIdentity("", -1), None, positions)
    assert counter.get(commit, 9).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert counter.shard.log.offsets["s"][TopicPartition("t", 0)].offset == 7
    (deleted,) = counter.get(DeleteGroupsRequest(groups_names=("s",))).results
    assert deleted.error_code == ErrorCode.NONE
    assert counter.get(ListGroupsRequest()).groups == ()


def test_other_protocols_are_refused_by_its_groups_and_it_by_theirs(counter: Counter) -> None:
    join = JoinGroupRequest(
        group_id="s", session_timeout_ms=10_000, member_id="", protocol_type="x", protocols=()
    )
    assert counter.get(join).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for request in (
        HeartbeatRequest(group_id="s", generation_id=1, member_id="m"),
        LeaveGroupRequest(group_id="s", members=()),
    ):
        assert counter.get(request, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    made = replace(
        join, group_id="c", protocols=(JoinGroupRequestProtocol(name="x", metadata=b""),)
    )
    counter.get(made)
    assert "c" in counter.shard.session.groups
    assert counter.get(Open("c")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_afterwards_nobody_knows_the_kind() -> None:
    assert [kind.name for kind in KINDS.all] == ["classic", "draft", "consumer"]
