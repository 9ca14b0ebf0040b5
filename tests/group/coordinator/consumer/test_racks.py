"""Racks of members and partitions (KIP-881), which Kafka's coordinator ignores (K63)."""

from __future__ import annotations

import uuid

from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue

NEAR_FAR = {"t": ("x", "x", "y", "y")}


def two_racks(*, rack_aware: bool) -> ConsumerDialogue:
    """The first member by name is far from the first partitions by number."""
    group = ConsumerDialogue(group_consumer_rack_aware=rack_aware)
    group.racks = NEAR_FAR
    group.topics(t=4)
    group.enter("a", "t", rack_id="y")
    group.enter("b", "t", rack_id="x")
    group.converge("a", "b")
    return group


def test_k63_partitions_go_to_members_in_their_rack_if_that_is_asked_for() -> None:
    group = ConsumerDialogue(group_consumer_rack_aware=True)
    group.racks = NEAR_FAR
    group.topics(t=4)
    group.holds_jobs = True
    group.beat_token("a", 0, **joining("y"))
    group.heartbeat("b", 0, **joining("x"))
    group.do_jobs()
    group.holds_jobs = False
    group.converge("a", "b")
    assert (group.has("a"), group.has("b")) == ({"t": {2, 3}}, {"t": {0, 1}})


def joining(rack: str) -> dict[str, object]:
    return {
        "held": {},
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ("t",),
        "rack_id": rack,
    }


def test_k63_else_racks_change_nothing() -> None:
    group, plain = two_racks(rack_aware=False), ConsumerDialogue()
    plain.topics(t=4)
    plain.settled("a", "b")
    assert [group.has(each) for each in "ab"] == [plain.has(each) for each in "ab"]


def test_k63_range_looks_at_racks_too() -> None:
    group = ConsumerDialogue(group_consumer_rack_aware=True, group_consumer_assignors=("range",))
    group.racks = NEAR_FAR
    group.topics(t=4)
    group.enter("a", "t", rack_id="y")
    group.enter("b", "t", rack_id="x")
    group.converge("a", "b")
    assert (group.has("a"), group.has("b")) == ({"t": {2, 3}}, {"t": {0, 1}})


def test_k10_a_members_rack_begins_an_epoch_only_where_assignors_look_at_it() -> None:
    for rack_aware in (False, True):
        group = two_racks(rack_aware=rack_aware)
        epoch = group.group.epoch
        group.heartbeat("a", group.member("a").epoch, rack_id="z")
        assert group.member("a").rack_id == "z"
        assert group.group.epoch == epoch + rack_aware


def test_k14_partitions_that_change_their_rack_begin_an_epoch() -> None:
    group = two_racks(rack_aware=True)
    epoch = group.group.epoch
    group.racks = {"t": ("y", "y", "x", "x")}
    group.topics(t=4)
    group.converge("a", "b")
    assert group.group.epoch == epoch + 1


def test_k14_the_order_of_racks_is_no_change() -> None:
    topic_id = uuid.UUID(int=7)
    images = (
        TopicsImage.of([("t", TopicView(topic_id, 2, racks))], NO_TOPICS)
        for racks in (
            (frozenset(("a", "b")), frozenset(("b",))),
            (frozenset(("b", "a")), frozenset(("b",))),
        )
    )
    first, second = (image.metadata_hash(["t"]) for image in images)
    assert first == second


def test_k14_racks_that_run_together_are_told_apart() -> None:
    """The racks ab and c differ from a and bc."""
    hashes = {
        TopicsImage.of(
            [("t", TopicView(uuid.UUID(int=7), 1, (frozenset(racks),)))], NO_TOPICS
        ).metadata_hash(["t"])
        for racks in (("ab", "c"), ("a", "bc"), ("abc",), ())
    }
    assert len(hashes) == 4
