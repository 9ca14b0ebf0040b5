"""Members that send false data harm only themselves."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kohort.group.assignors import Assignor, ClusterView, CooperativeStickyAssignor, Subscription
from kohort.group.effects import AssignmentJob
from kohort.group.events import Ownership
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.group.member.events import RejoinAsked, ResponseArrived, Subscribed
from kohort.group.subscription import (
    decode_assignment,
    encode_subscription,
)
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.membership import (
    JoinGroupRequest,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from tests.group.together.cooperative import Keep
from tests.group.together.world import Application, World

FLIGHTS = frozenset({"flights"})


def join(world: World, name: str) -> Application:
    application = world.start(name, Keep())
    world.tell(application, Subscribed(FLIGHTS))
    return application


def deliver_saying(world: World, application: Application, metadata: bytes) -> None:
    """Deliver everything, with other metadata in the member's JoinGroup requests."""
    while application.requests or application.answers or application.looking_up:
        if application.requests:
            send = application.requests[0]
            if isinstance(send.request, JoinGroupRequest):
                said = tuple(replace(each, metadata=metadata) for each in send.request.protocols)
                request = replace(send.request, protocols=said)
                application.requests[0] = replace(send, request=request)
        world.work(application)


GARBAGE = [b"", b"\x00", b"\xff" * 40, struct.pack(">hi", 1, 2**31 - 1), b"\x00\x03" + bytes(7)]


@pytest.mark.parametrize("metadata", GARBAGE)
def test_a_subscription_that_is_garbage_hurts_only_its_sender(metadata: bytes) -> None:
    world = World()
    north = join(world, "north")
    world.settle()
    kept = north.member.assigned
    stranger = join(world, "stranger")
    deliver_saying(world, stranger, metadata)
    north.words.clear()
    for _ in range(30):
        for each in (north, stranger):
            while world.work(each):
                deliver_saying(world, stranger, metadata)
        world.now += 250
        world.expire()
    assert north.member.assigned == kept
    assert {change for change, _ in north.words} == {Ownership.ASSIGNED}
    assert not north.raised
    assert stranger.member.assigned == frozenset()


def test_l5_an_assignment_that_is_garbage_is_reported_and_takes_nothing_away() -> None:
    world = World()
    north = join(world, "north")
    world.settle()
    kept = north.member.assigned
    world.tell(north, RejoinAsked(""))
    while north.member.state is not ClassicMemberState.COMPLETING_REBALANCE or not north.requests:
        world.work(north)
    send = north.requests.popleft()
    garbage = SyncGroupResponse(error_code=0, assignment=b"\x00\x01\xff")
    world.tell(north, ResponseArrived(send.token, garbage))
    assert len(north.raised) == 1
    assert north.member.fetchable == kept
    world.advance(8_000)
    assert world.everybody_is_stable()
    assert north.member.assigned == kept


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["flights", "x", ""]), st.integers(-2, 9))
SAID = st.builds(
    Subscription,
    topics=st.frozensets(st.sampled_from(["flights", "x", ""])),
    owned=st.frozensets(PARTITIONS),
    generation=st.sampled_from([-1, 0, 5, 2**31 - 1]),
    user_data=st.none() | st.binary(max_size=6),
)


@given(
    said=st.dictionaries(st.sampled_from("abc"), SAID, min_size=1),
    noise=st.binary(max_size=30),
    builtin=st.booleans(),
)
def test_l8_whatever_members_say_the_leader_gives_what_exists_to_who_wants_it(
    said: dict[str, Subscription], noise: bytes, builtin: bool
) -> None:
    members = [
        JoinGroupResponseMember(member_id=member, metadata=encode_subscription(entry))
        for member, entry in said.items()
    ]
    members.append(JoinGroupResponseMember(member_id="noise", metadata=noise))
    subscriptions = leader.subscriptions_of(members)
    assignor = CooperativeStickyAssignor() if builtin else Keep()
    job = AssignmentJob(1, assignor.name, subscriptions)
    found = leader.compute(job, {assignor.name: assignor}, ClusterView({"flights": 4}))
    given_out: list[TopicPartition] = []
    for member, data in found.items():
        got = decode_assignment(data)[0]
        assert {each.topic for each in got} <= {"flights"} & subscriptions[member].topics
        assert all(0 <= each.partition < 4 for each in got)
        others = [e.owned for other, e in subscriptions.items() if other != member]
        assert not (got - subscriptions[member].owned) & frozenset().union(*others)
        given_out += got
    assert len(given_out) == len(set(given_out))


@pytest.mark.parametrize("assignor", [Keep, CooperativeStickyAssignor])
def test_l21_a_zombie_that_joins_with_an_old_claim_gets_nothing_before_its_owner_gave_it_up(
    assignor: type[Assignor],
) -> None:
    """KIP-792, with the whole protocol: the claim is from an outdated generation."""
    world = World()
    north = world.start("north", assignor())
    world.tell(north, Subscribed(FLIGHTS))
    world.settle()
    for _ in range(3):
        world.tell(north, RejoinAsked("another generation"))
        world.settle()
    everything = north.member.assigned
    assert north.member.generation_id == 4
    north.words.clear()
    zombie = world.start("zombie", assignor())
    world.tell(zombie, Subscribed(FLIGHTS))
    claim = Subscription(topics=FLIGHTS, owned=everything, generation=2)
    while zombie.member.generation_id < 5:
        deliver_saying(world, zombie, encode_subscription(claim))
        world.work(north)
        world.now += 250
        world.expire()
    while not zombie.words:
        world.work(zombie)
        world.work(north)
    assert zombie.words[0] == (Ownership.ASSIGNED, frozenset())
    assert zombie.believes == set()
    assert len(north.believes) in (4, 8)  # it revokes its half itself
    world.advance(10_000)
    assert {len(north.believes), len(zombie.believes)} == {4}
    assert [change for change, _ in north.words] == [
        Ownership.REVOKED,
        Ownership.ASSIGNED,
        Ownership.ASSIGNED,
    ]
