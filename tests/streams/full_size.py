"""What 1,000 instances with 10,000 tasks say and are told, as the bytes that travel.

Four sub-topologies of two topics each; every member learns, follows two standbys for each of its
ten tasks, has old state of ten more, and tells in which zone it is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from immutables import Map

from kohort.group.subscription import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.streams.assignment.metadata import Claim, encode_claim
from kohort.streams.assignment.plan import assignments, make_plan, read_joined, situation
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import SubTopology, Topology

MEGABYTE = 1_000_000
MEMBERS = 1_000
_EACH = 10
_PARTS = 4
_TASKS = MEMBERS * _EACH
_TOPOLOGY = Topology(
    [SubTopology((f"orders-by-customer-{n}", f"payments-{n}")) for n in range(_PARTS)]
)
_EVERY = _TOPOLOGY.tasks(dict.fromkeys(_TOPOLOGY.topics, _TASKS // _PARTS))
_AGREED = LearnerSettings(num_standby_replicas=2, max_warmup_learners=None)


def subscriptions() -> list[bytes]:
    """Return the subscription of each member."""
    shuffled = [*_EVERY]
    random.Random(1).shuffle(shuffled)
    found = []
    for number in range(MEMBERS):
        first = _EACH * number
        near = [shuffled[(first + step) % _TASKS] for step in range(10, 52)]
        claim = Claim(
            generation=1_234,
            learning=Map({t: 123_456_789 + n for n, t in enumerate(near[:2])}),
            standbys=Map({t: 1_000 + n for n, t in enumerate(near[2:22])}),
            dormant=Map(dict.fromkeys(near[22:32])),
            leaving_ms=3_600_000 if number % 10 == 0 else None,
            client_tags=Map({"zone": f"eu-central-1{'abc'[number % 3]}", "cluster": "k8s-1"}),
        )
        said = Subscription(
            topics=_TOPOLOGY.topics,
            owned=_TOPOLOGY.inputs(shuffled[first : first + (8 if number % 2 else _EACH)]),
            generation=1_234,
            user_data=encode_claim(claim),
        )
        found.append(encode_subscription(said))
    return found


def planned(members: Sequence[str], joined: Sequence[bytes]) -> Mapping[str, bytes]:
    """Return the assignment of each member, as the leader sends it.

    Args:
        members: The members' ids.
        joined: The subscription of each.
    """
    said = {name: decode_subscription(data) for name, data in zip(members, joined, strict=True)}
    found = situation(sorted(_EVERY), frozenset(), read_joined(_TOPOLOGY, said), _AGREED)
    given = assignments(make_plan(found, _AGREED), members, _TOPOLOGY, _AGREED)
    return {
        name: encode_assignment(each.partitions, each.user_data) for name, each in given.items()
    }
