"""Outcomes of a consumer group: for each situation and event, the next state and the effects.

Such a group has no stored state (K15); the situations cover its states and its members'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kohort.group.coordinator.consumer.state.group import Member
from kohort.group.coordinator.events import JobDone, ShardEvent, Tick, TopicsChanged
from kohort.group.coordinator.jobs import NewTarget
from kohort.group.coordinator.state import LogState, ShardSession
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.group.subscription import Subscription, encode_subscription
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.group.coordinator.consumer.consumer_dialogue import Held
from tests.group.coordinator.dialogue import GROUP, WALL
from tests.group.coordinator.migration.dialogue import MixedDialogue
from tests.group.outcomes.shard_parts import asked, led_to

_POSITION = {TopicPartition("t", 0): OffsetAndMetadata(7)}
_BY_NAME = 9  # later versions of OffsetCommit have topic ids, which a shard does not know
_REBALANCE_MS = 30_000


def nothing() -> MixedDialogue:
    """No group; the cluster has two topics."""
    talk = MixedDialogue()
    talk.topics(t=4, u=2)
    return talk


def empty() -> MixedDialogue:
    """The only member has left."""
    talk = stable()
    for member_id in ("a", "s"):
        talk.heartbeat(member_id, -1)
    assert talk.group.state.value == "Empty"
    return talk


def assigning() -> MixedDialogue:
    """A second member joins, and waits for the target assignment."""
    talk = nothing()
    talk.settled("a")
    talk.holds_jobs = True
    talk.beat_token("s", 0, **_joining(instance_id="i"))
    assert talk.group.state.value == "Assigning"
    return talk


def reconciling() -> MixedDialogue:
    """Member a must revoke two partitions, which s will get."""
    talk = nothing()
    talk.settled("a")
    talk.enter("s", "t", instance_id="i")
    talk.heartbeat("a", talk.member("a").epoch, held=talk.has("a"))
    assert talk.member("a").state.name == "UNREVOKED_PARTITIONS"
    assert talk.member("s").state.name == "UNRELEASED_PARTITIONS"
    return talk


def stable() -> MixedDialogue:
    """A dynamic member a and a static one, s."""
    talk = nothing()
    talk.enter("a", "t")
    talk.enter("s", "t", instance_id="i")
    talk.converge("a", "s")
    assert talk.group.state.value == "Stable"
    return talk


def gone_for_a_while() -> MixedDialogue:
    """The static member left temporarily."""
    talk = stable()
    talk.heartbeat("s", -2, instance_id="i")
    return talk


def mixed_reconciling() -> MixedDialogue:
    """Beside a there is a classic member; its partitions are free, and it has to rejoin."""
    talk = nothing()
    talk.settled("a")
    member_id = talk.joined().member_id
    joined = talk.joined(member_id)
    assert talk.synced(member_id, joined.generation_id) == set()
    talk.converge("a")
    assert talk.group.state.value == "Reconciling"
    assert talk.member(member_id).classic is not None
    return talk


def mixed_stable() -> MixedDialogue:
    """The classic member has its partitions."""
    talk = mixed_reconciling()
    (member_id,) = _classic_members(talk)
    joined = talk.joined(member_id)
    assert len(talk.synced(member_id, joined.generation_id)) == 2
    assert talk.group.state.value == "Stable"
    return talk


SITUATIONS: dict[str, Callable[[], MixedDialogue]] = {
    "no group": nothing,
    "Empty": empty,
    "Assigning": assigning,
    "Reconciling": reconciling,
    "Stable": stable,
    "Stable until s said that it will be back": gone_for_a_while,
    "Reconciling, and c is classic": mixed_reconciling,
    "Stable, and c is classic": mixed_stable,
}


def _joining(**more: Any) -> dict[str, Any]:
    return {
        "held": {},
        "rebalance_timeout_ms": _REBALANCE_MS,
        "subscribed_topic_names": ("t",),
    } | more


Case = tuple[str, ShardEvent, int]  # its name in the table, and its delay


def cases(talk: MixedDialogue) -> Iterator[Case]:
    """Yield every event, with a few variants of requests."""
    for beats in (_joins, _beats, _leaves):
        for name, member_id, epoch, more in beats(talk):
            yield _request(name, _beat(talk, member_id, epoch, **more), 1)
    yield from _classic_apis(talk)
    yield from _positions(talk)
    for member_id in _classic_members(talk):
        yield from _of_a_classic_member(talk, member_id)
    yield "the first clock is over", Tick(WALL), _next_ms(talk)
    yield "a topic grows", TopicsChanged(_grown(talk)), 0
    yield "a job is done that nobody waits for", JobDone(99, GROUP, NewTarget(), WALL), 0
    for job in talk.held_back:
        done = JobDone(job.token, GROUP, NewTarget(error="no"), WALL)
        yield "the job that a member waits for fails", done, 0


def _request(name: str, request: Message, version: int | None = None) -> Case:
    kind = type(request).__name__.removesuffix("Request")
    # with the client id and host of the members of a situation
    arrived = replace(asked(request, version), client_id="c", client_host="/127.0.0.1")
    return f"{kind} {name}", arrived, 0


def _beat(talk: MixedDialogue, member_id: str, epoch: int, **more: Any) -> Message:
    held = more.pop("held", None)
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=None if held is None else talk.by_id(held),
        **more,
    )


def _classic_join(
    instance: str | None = None,
    member_id: str = "",
    topic: str = "t",
    owned: Iterable[int] = (),
) -> JoinGroupRequest:
    has = frozenset(TopicPartition("t", number) for number in owned)
    metadata = encode_subscription(Subscription(topics=frozenset({topic}), owned=has))
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=_REBALANCE_MS,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


def _member(talk: MixedDialogue, member_id: str) -> Member:
    group = talk.shard.log.consumer_groups.get(GROUP)
    known = group.members.get(member_id) if group else None
    return known or Member(member_id=member_id, epoch=5)


def _epoch(talk: MixedDialogue, member_id: str) -> int:
    return _member(talk, member_id).epoch


def _held(talk: MixedDialogue, member_id: str) -> Held:
    return talk.by_name(_member(talk, member_id).assigned)


def _next_ms(talk: MixedDialogue) -> int:
    due = talk.shard.next_deadline()
    return 0 if due is None else due - talk.now


def _grown(talk: MixedDialogue) -> TopicsImage:
    views = {
        name: replace(view, partitions=view.partitions + (name == "t"))
        for name, view in talk.image.by_name.items()
    }
    return TopicsImage.of(views.items(), talk.image)


_Beat = tuple[str, str, int, dict[str, Any]]


def _joins(_talk: MixedDialogue) -> Iterator[_Beat]:
    yield "of a newcomer", "n", 0, _joining()
    yield "of a newcomer to another topic", "n", 0, _joining(subscribed_topic_names=("u",))
    yield "of a newcomer by a pattern", "n", 0, _joining(subscribed_topic_regex="t.*")
    yield "of a newcomer with an assignor", "n", 0, _joining(server_assignor="range")
    yield "of a newcomer with an unknown assignor", "n", 0, _joining(server_assignor="mine")
    yield "of a newcomer without a subscription", "n", 0, _joining(subscribed_topic_names=None)
    yield "of a that joins again", "a", 0, _joining()
    yield "of s started anew", "n", 0, _joining(instance_id="i")
    yield "of s that joins again", "s", 0, _joining(instance_id="i")


def _beats(talk: MixedDialogue) -> Iterator[_Beat]:
    here = _epoch(talk, "a")
    held = _held(talk, "a")
    yield "of a", "a", here, {}
    yield "of a with what it is to keep", "a", here, {"held": held}
    yield "of a that has given up all", "a", here, {"held": {}}
    yield "of a in the epoch before", "a", here - 1, {"held": {}}
    yield "of a in an epoch to come", "a", here + 1, {"held": {}}
    yield "of a with another topic", "a", here, {"subscribed_topic_names": ("t", "u")}
    yield "of a with another rack", "a", here, {"rack_id": "r"}
    yield "of a stranger", "who", 1, {}
    yield "of s", "s", _epoch(talk, "s"), {"instance_id": "i"}
    yield "of a former s", "old", 1, {"instance_id": "i"}


def _leaves(_talk: MixedDialogue) -> Iterator[_Beat]:
    yield "of a that leaves", "a", -1, {}
    yield "of s that leaves", "s", -1, {"instance_id": "i"}
    yield "of s that will be back", "s", -2, {"instance_id": "i"}
    yield "of a stranger that leaves", "who", -1, {}


def _classic_apis(talk: MixedDialogue) -> Iterator[Case]:
    yield _request("without an id", _classic_join())
    yield _request("of s started anew in the other protocol", _classic_join(instance="i"))
    for who in ("a", "who"):
        identity = {"group_id": GROUP, "member_id": who, "generation_id": _epoch(talk, "a")}
        yield _request(f"of {who}", HeartbeatRequest(**identity))  # type: ignore[arg-type]  # of its fields' types
        sync = SyncGroupRequest(**identity, assignments=())  # type: ignore[arg-type]  # of its fields' types
        yield _request(f"of {who}", sync, 4)
    for who, member_id, instance in (
        ("of a", "a", None),
        ("of s by an operator", "", "i"),
        ("of a stranger", "who", None),
        ("of a as s", "a", "i"),
    ):
        members = (MemberIdentity(member_id=member_id, group_instance_id=instance),)
        yield _request(who, LeaveGroupRequest(group_id=GROUP, members=members))
    yield _request("of the group", DescribeGroupsRequest(groups=(GROUP,)))
    yield _request("of the group", ConsumerGroupDescribeRequest(group_ids=(GROUP,)))
    yield _request("of the group", DeleteGroupsRequest(groups_names=(GROUP,)))


def _classic_members(talk: MixedDialogue) -> list[str]:
    group = talk.shard.log.consumer_groups.get(GROUP)
    members = group.members.values() if group else ()
    return [each.member_id for each in members if each.classic is not None]


def _of_a_classic_member(talk: MixedDialogue, member_id: str) -> Iterator[Case]:
    here = _epoch(talk, member_id)
    held = _held(talk, member_id).get("t", set())
    yield _request("of c", _classic_join(member_id=member_id, owned=held))
    yield _request("of c that gave all up", _classic_join(member_id=member_id))
    yield _request("of c to another topic", _classic_join(member_id=member_id, topic="u"))
    for name, generation in (("of c", here), ("of c as it was", here - 1)):
        identity = {"group_id": GROUP, "member_id": member_id, "generation_id": generation}
        yield _request(name, HeartbeatRequest(**identity))  # type: ignore[arg-type]  # of its fields' types
        sync = SyncGroupRequest(**identity, assignments=())  # type: ignore[arg-type]  # of its fields' types
        yield _request(name, sync, 4)
        commit = commit_request(GROUP, CommitIdentity(member_id, generation), None, _POSITION)
        yield _request(name, commit, _BY_NAME)
    for name, who in (("of c", member_id), ("of a, the last consumer", "a")):
        members = (MemberIdentity(member_id=who, group_instance_id=None),)
        yield _request(name, LeaveGroupRequest(group_id=GROUP, members=members))
    yield _request("of c as a consumer", _beat(talk, member_id, 0, **_joining()), 1)


def _positions(talk: MixedDialogue) -> Iterator[Case]:
    here = _epoch(talk, "a")
    for who, member_id, epoch in (
        ("of a", "a", here),
        ("of a in the epoch before", "a", here - 1),
        ("of a in an epoch to come", "a", here + 1),
        ("of a stranger", "who", here),
        ("of nobody", "", -1),
    ):
        request = commit_request(GROUP, CommitIdentity(member_id, epoch), None, _POSITION)
        yield _request(who, request, _BY_NAME)
    for topic in ("t", "u"):
        partitions = (OffsetDeleteRequestPartition(partition_index=0),)
        topics = (OffsetDeleteRequestTopic(name=topic, partitions=partitions),)
        yield _request(f"of topic {topic}", OffsetDeleteRequest(group_id=GROUP, topics=topics))


# ------------------------------------------------------------------------------------- outcomes


def outcome(talk: MixedDialogue, event: ShardEvent, later_ms: int) -> str:
    """Run an event and describe all its effects in one line."""
    before, shard = talk.shard.session, talk.shard
    effects = shard.decide(event, talk.now + later_ms)
    log = shard.log
    for record in effects.records:
        log = log.apply(record)
    parts = [_standing(log, effects.session), *_moved(shard.log, log)]
    for reply in effects.replies:
        if isinstance(reply.response, ConsumerGroupHeartbeatResponse):
            parts += _told(reply.response)
    return "; ".join([*parts, *led_to(before, effects)])


def _standing(log: LogState, session: ShardSession) -> str:
    group = log.consumer_groups.get(GROUP)
    return group.state.value if group else f"classic: {session.group(log, GROUP).state.value}"


def _moved(before: LogState, after: LogState) -> Iterator[str]:
    """Yield the members whose state or epoch differs."""
    old, new = before.consumer_groups.get(GROUP), after.consumer_groups.get(GROUP)
    if old is None or new is None:
        return
    if new.epoch != old.epoch:
        yield f"epoch +{new.epoch - old.epoch}"
    for member_id in sorted(new.members):
        now, then = new.members[member_id], old.members.get(member_id)
        if then is not None and (now.state, now.epoch) != (then.state, then.epoch):
            yield f"{member_id} is {now.state.name} in epoch {now.epoch}"


def _told(response: ConsumerGroupHeartbeatResponse) -> Iterator[str]:
    if response.assignment is not None:
        given = response.assignment.topic_partitions
        yield f"gives {sum(len(each.partitions) for each in given)} partitions"


def table() -> dict[str, dict[str, str]]:
    """Run every case in every situation; deciding changes nothing."""
    found: dict[str, dict[str, str]] = {}
    for name, make in SITUATIONS.items():
        talk = make()
        found[name] = {
            case: outcome(talk, event, later_ms) for case, event, later_ms in cases(talk)
        }
    return found
