"""A member with an invalid subscription harms only itself."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given
from immutables import Map

from kohort.group.assignors import BUILTIN_ASSIGNORS, ClusterView
from kohort.group.effects import AssignmentJob
from kohort.group.member import leader
from kohort.group.subscription import Subscription, decode_assignment, encode_subscription
from kohort.types import TopicPartition
from kohort.wire.messages.membership import JoinGroupResponseMember

FLIGHTS = frozenset({"flights"})
CLUSTER = ClusterView({"flights": 6})
HONEST = encode_subscription(Subscription(topics=FLIGHTS))

NUMBERS = st.integers(-(2**31), 2**31 - 1)
# Well-formed but false: nonexistent topics, impossible partitions, any generation.
LIES = st.builds(
    Subscription,
    topics=st.frozensets(st.sampled_from(["flights", "nowhere", "", "\0"])),
    owned=st.frozensets(
        st.builds(TopicPartition, st.sampled_from(["flights", "nowhere"]), NUMBERS), max_size=9
    ),
    generation=NUMBERS,
    user_data=st.none() | st.binary(max_size=40),
    rack_id=st.none() | st.text(max_size=3),
).map(encode_subscription)
CUT = st.builds(lambda data, end: data[:end], LIES, st.integers(0, 60))


@pytest.mark.parametrize("assignor", sorted(BUILTIN_ASSIGNORS))
@given(foreign=st.binary(max_size=60) | LIES | CUT)
def test_a10_the_others_still_share_every_partition(assignor: str, foreign: bytes) -> None:
    members = [
        JoinGroupResponseMember(member_id=name, metadata=metadata)
        for name, metadata in (("a", HONEST), ("b", HONEST), ("foreign", foreign))
    ]
    subscriptions = leader.subscriptions_of(members)
    owned = assigned(assignor, subscriptions)
    for _ in range(2):  # cooperatively, a moving partition has no owner for one round
        told = {
            member: Subscription(topics=said.topics, owned=owned[member], generation=5)
            for member, said in subscriptions.items()
        }
        owned = assigned(assignor, told)
    assert sum(len(partitions) for partitions in owned.values()) == 6
    assert frozenset().union(*owned.values()) == {TopicPartition("flights", n) for n in range(6)}
    wants = "flights" in subscriptions["foreign"].topics
    assert len(owned["a"]) == len(owned["b"]) == (2 if wants else 3)


def assigned(
    assignor: str, subscriptions: Mapping[str, Subscription]
) -> dict[str, frozenset[TopicPartition]]:
    """Return each member's assignment by a leader."""
    job = AssignmentJob(token=1, assignor=assignor, subscriptions=Map(subscriptions))
    given = leader.compute(job, {assignor: BUILTIN_ASSIGNORS[assignor]}, CLUSTER)
    return {member: decode_assignment(data)[0] for member, data in given.items()}
