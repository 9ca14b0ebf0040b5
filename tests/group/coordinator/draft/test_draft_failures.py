"""Draft groups when a part dies, a topic grows, or protocols mix (docs/internals/draft.md)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.draft.table import DRAFT_GROUP
from kohort.group.coordinator.jobs import DraftJobDone
from kohort.group.events import Cause, GenerationStarted, MemberLeft, RebalanceStarted
from kohort.group.subscription import decode_assignment, decode_subscription
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.draft_records import DraftGroupKey
from kohort.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.draft.draft_dialogue import DraftDialogue, owned

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
FLIGHTS = [("flights", number) for number in range(4)]


def causes(d: DraftDialogue) -> list[Cause]:
    return [event.cause for event in d.observed if isinstance(event, RebalanceStarted)]


def test_d12_a_silent_consumer_is_dead_and_its_partitions_go_to_the_others() -> None:
    d = DraftDialogue()
    first, second = d.steady("a", "b")
    d.advance(6_000)
    assert d.ping(first, 2) == ErrorCode.NONE
    d.advance(4_000)
    assert d.state == "PrepareForRebalance"
    assert d.ping(first, 2) == ILLEGAL
    (answer,) = d.joined(d.ask_join(first, host="a"))
    assert owned(answer) == FLIGHTS
    assert causes(d)[-1] is Cause.SESSION_EXPIRED
    assert d.ping(second, 2) == UNKNOWN


@pytest.mark.parametrize(
    ("session", "code"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.NONE),
        (60_000, ErrorCode.NONE),
        (60_001, ErrorCode.INVALID_SESSION_TIMEOUT),
        (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_d12_the_broker_bounds_the_session_timeout(session: int, code: ErrorCode) -> None:
    d = DraftDialogue(group_min_session_timeout_ms=6_000, group_max_session_timeout_ms=60_000)
    (answer,) = d.joined(d.ask_join(session=session))
    assert answer.error_code == code


@pytest.mark.parametrize(
    "wrong", [{"host": "h" * 256}, {"frequency": 0}, {"frequency": -1}], ids=str
)
def test_a_join_that_no_id_or_heartbeat_can_be_made_of_is_refused(wrong: dict[str, Any]) -> None:
    d = DraftDialogue()
    assert d.answers[d.ask_join(**wrong)].error_code == ErrorCode.INVALID_REQUEST
    assert d.state == "None"


def test_an_id_that_would_not_fit_the_wire_is_refused() -> None:
    d = DraftDialogue()
    token = d.ask_join(group_id="g" * 32_760)
    assert d.answers[token].error_code == ErrorCode.INVALID_REQUEST


def test_a_flood_of_newcomers_is_bounded() -> None:
    d = DraftDialogue(group_max_size=2)
    (first,) = d.steady("a")
    tokens = [d.ask_join(host=host) for host in "bc"]
    assert d.answers[tokens[1]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [a.error_code for a in d.joined(d.ask_join(first, host="a"), tokens[0])] == [0, 0]


def test_d12_a_consumer_dies_during_the_rebalance() -> None:
    d = DraftDialogue()
    first, dying = d.steady("a", "b")
    new = d.ask_join(host="c")
    again = d.ask_join(first, host="a")
    d.advance(9_999)
    assert d.state == "PrepareForRebalance"
    d.advance(1)
    answers = d.joined(again, new)
    assert [len(owned(each)) for each in answers] == [2, 2]
    assert d.ping(dying, 2) == UNKNOWN


def test_d13_who_only_pings_but_does_not_join_is_dead_after_the_longest_session() -> None:
    d = DraftDialogue()
    first, busy = d.steady("a", "b")
    new = d.ask_join(host="c")
    again = d.ask_join(first, host="a")
    for _ in range(9):
        d.advance(1_000)
        assert d.ping(busy, 2) == ILLEGAL
    d.advance(1_000)
    assert all(each.error_code == ErrorCode.NONE for each in d.joined(again, new))
    assert d.ping(busy, 2) == UNKNOWN
    assert [e.cause for e in d.observed if isinstance(e, MemberLeft)] == [Cause.JOIN_TIMED_OUT]


def test_d13_a_group_of_unlike_sessions_waits_for_the_longest() -> None:
    d = DraftDialogue()
    slow = d.joined(d.ask_join(host="slow", session=60_000))[0].consumer_id
    d.ask_join(host="new")
    d.advance(59_000)
    assert d.ping(slow, 1) == ILLEGAL
    assert d.state == "PrepareForRebalance"
    d.advance(1_000)
    assert d.state == "Rebalancing"


def test_d12_who_waits_for_its_join_to_be_answered_is_alive() -> None:
    d = DraftDialogue()
    slow = d.joined(d.ask_join(host="slow", session=60_000))[0].consumer_id
    quick = d.ask_join(host="quick", session=6_000)
    d.joined(d.ask_join(slow, host="slow", session=60_000), quick)
    d.ask_join(host="new")
    waits = d.ask_join("g-quick-2", host="quick", session=6_000)
    d.advance(30_000)
    answer, _ = d.joined(waits, d.ask_join(slow, host="slow", session=60_000))
    assert answer.consumer_id == "g-quick-2"


def test_the_last_consumer_dies_and_the_group_remembers_only_its_numbers() -> None:
    d = DraftDialogue()
    d.steady("a")
    d.advance(11_000)
    assert d.state == "None"
    assert GROUP not in d.shard.session.draft_groups
    stored = d.shard.log.draft_groups[GROUP]
    assert (stored.generation, stored.next_sequence, len(stored.consumers)) == (1, 2, 0)


def test_everybody_dies_while_a_new_consumer_waits() -> None:
    d = DraftDialogue()
    d.steady("a", "b")
    new = d.ask_join(host="c")
    d.advance(10_000)
    (answer,) = d.joined(new)
    assert (answer.consumer_id, owned(answer)) == ("g-c-3", FLIGHTS)


def test_the_assignor_fails_and_the_group_lives() -> None:
    d = DraftDialogue()
    token = d.ask_join()
    d.run(DraftJobDone(d.waiting.popleft(), None))
    assert d.answers[token].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    again = d.ask_join("g-host-1")
    (answer,) = d.joined(again)
    assert answer.error_code == ErrorCode.NONE


def test_a_consumer_changes_its_topics() -> None:
    d = DraftDialogue()
    first, second = d.steady("a", "b")
    changed = d.ask_join(second, host="b", topics=("delays",))
    assert d.ping(first, 2) == ILLEGAL
    answers = d.joined(changed, d.ask_join(first, host="a"))
    assert owned(answers[0]) == [("delays", 0), ("delays", 1)]
    assert owned(answers[1]) == FLIGHTS
    assert causes(d)[-1] is Cause.SUBSCRIPTION_CHANGED


def test_a_consumer_changes_its_topics_while_they_are_being_assigned() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    new = d.ask_join(host="b")
    d.ask_join(first, host="a")
    changed = d.ask_join(first, host="a", topics=("delays",))
    d.job()  # its result is too old
    assert d.state == "Rebalancing"
    answers = d.joined(changed, new)
    assert [len(owned(each)) for each in answers] == [2, 4]
    assert {each.group_generation_id for each in answers} == {2}


# ----------------------------------------------------------------------------------------- topics


def test_d14_new_partitions_start_a_rebalance() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    d.count(flights=6)
    assert d.ping(first, 1) == ILLEGAL
    (answer,) = d.joined(d.ask_join(first, host="a"))
    assert len(owned(answer)) == 6
    assert causes(d)[-1] is Cause.TOPICS_CHANGED


def test_d14_topics_that_nobody_reads_disturb_nobody() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    d.count(delays=9, other=1)
    assert d.ping(first, 1) == ErrorCode.NONE


def test_d14_a_topic_grows_while_its_partitions_are_assigned() -> None:
    d = DraftDialogue()
    token = d.ask_join(host="a")
    d.count(flights=5)
    d.job()
    assert d.answers[token].error_code == ErrorCode.NONE
    assert d.state == "PrepareForRebalance"
    (answer,) = d.joined(d.ask_join("g-a-1", host="a"))
    assert len(owned(answer)) == 5


def test_d14_a_topic_that_does_not_exist_yet_is_waited_for() -> None:
    d = DraftDialogue()
    (answer,) = d.joined(d.ask_join(host="a", topics=("later",)))
    assert owned(answer) == []
    d.count(later=1)
    (answer,) = d.joined(d.ask_join("g-a-1", host="a", topics=("later",)))
    assert owned(answer) == [("later", 0)]


def test_d14_a_topic_that_grew_while_nobody_coordinated_is_noticed() -> None:
    d = DraftDialogue()
    d.steady("a")
    d.counts["flights"] = 5
    d.reload()
    assert d.state == "PrepareForRebalance"
    assert causes(d)[-1] is Cause.TOPICS_CHANGED


# --------------------------------------------------------------------------- the coordinator dies


def test_d15_it_dies_in_steady_and_the_next_one_goes_on() -> None:
    d = DraftDialogue()
    ids = d.steady("a", "b")
    d.reload()
    new = d.ask_join(host="c")
    answers = d.joined(*(d.ask_join(each, host=each[2]) for each in ids), new)
    assert {answer.group_generation_id for answer in answers} == {3}
    assert answers[-1].consumer_id == "g-c-3"


def test_d15_it_dies_while_it_prepares_and_who_waits_is_sent_to_the_next_one() -> None:
    d = DraftDialogue()
    first, second = d.steady("a", "b")
    waiting = [d.ask_join(host="c"), d.ask_join(first, host="a")]
    d.reload()
    assert [d.answers[t].error_code for t in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    assert [d.answers[t].consumer_id for t in waiting] == ["", first]
    assert d.state == "Steady"  # state that is not in the log is lost
    assert d.ping(second, 2) == ErrorCode.NONE
    (answer,) = d.joined(d.ask_join(first, host="a"))
    assert (answer.group_generation_id, owned(answer)) == (2, FLIGHTS[:2])


def test_d15_it_dies_while_it_assigns_and_the_generation_has_not_begun() -> None:
    d = DraftDialogue()
    first = d.steady("a")[0]
    tokens = [d.ask_join(host="b"), d.ask_join(first, host="a")]
    stale = d.waiting[0]
    d.reload()
    assert {d.answers[t].error_code for t in tokens} == {ErrorCode.NOT_COORDINATOR}
    assert d.generation == 1
    d.run(DraftJobDone(stale, {}))  # the late result of the previous one
    assert d.state == "Steady"
    new = d.ask_join(host="b")
    answers = d.joined(d.ask_join(first, host="a"), new)
    assert [each.consumer_id for each in answers] == ["g-a-1", "g-b-2"]
    assert {each.group_generation_id for each in answers} == {2}


def test_d15_generations_never_go_back() -> None:
    d = DraftDialogue()
    for _ in range(3):
        d.steady("a")
        d.advance(11_000)
        d.reload()
    started = [e.generation for e in d.observed if isinstance(e, GenerationStarted)]
    assert started == [1, 2, 3]


def test_d15_the_record_is_of_a_kind_that_kafka_passes_over() -> None:
    d = DraftDialogue()
    d.steady("a")
    kinds = {int.from_bytes(key[:2], "big") for key, _ in d.log}
    assert kinds == {DraftGroupKey.max_version} == {30_001}


# ------------------------------------------------------------------------------ other protocols


def test_d16_a_group_belongs_to_the_protocol_of_its_first_member() -> None:
    """C12: a group without classic members."""
    d = DraftDialogue()
    d.steady("a")
    assert d.answers[d.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.beat("g-a-1", 1) == UNKNOWN
    assert d.sync("g-a-1", 1).error_code == UNKNOWN
    assert d.leave(("g-a-1", None)).error_code == UNKNOWN
    assert d.ping("g-a-1", 1) == ErrorCode.NONE


def test_d16_a_classic_group_has_no_room_for_draft_consumers() -> None:
    d = DraftDialogue()
    (member,) = d.stable("m")
    assert d.answers[d.ask_join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.ping(member, 1) == UNKNOWN
    assert d.beat(member, 1) == ErrorCode.NONE


def test_d16_a_group_that_is_deleted_is_free_for_any_protocol() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    d.commit(first, 1)
    delete = DeleteGroupsRequest(groups_names=(GROUP,))
    assert d.get(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    d.advance(11_000)
    assert d.get(delete).results[0].error_code == ErrorCode.NONE
    assert d.shard.session.group_ids(d.shard.log) == []
    assert GROUP not in d.shard.log.draft_groups
    d.stable("m")
    d.reload()


def test_d16_a_member_of_the_consumer_protocol_is_refused_and_the_reverse() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    beat = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("flights",),
        topic_partitions=(),
    )
    assert d.get(beat).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert d.ping(first, 1) == ErrorCode.NONE
    other = replace(beat, group_id="other")
    d.ask(other)
    token = d.ask_join(group_id="other")
    assert d.answers[token].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# ------------------------------------------------------------------------------------------ tools


def test_tools_list_and_describe_a_draft_group() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    (entry,) = d.get(ListGroupsRequest()).groups
    assert (entry.group_id, entry.group_type, entry.group_state) == (GROUP, "draft", "Steady")
    assert d.get(ListGroupsRequest(types_filter=("Classic",))).groups == ()
    group = d.describe()
    assert (group.group_state, group.protocol_data) == ("Steady", "range")
    (member,) = group.members
    assert (member.member_id, member.client_host) == (first, "a")
    assert decode_subscription(member.member_metadata).topics == {"flights"}
    assert sorted(decode_assignment(member.member_assignment)[0]) == FLIGHTS
    d.ask_join(host="b")
    group = d.describe()
    assert group.group_state == "PrepareForRebalance"
    assert [each.member_assignment for each in group.members] == [b""]
    d.advance(11_000)
    d.work()
    d.advance(11_000)
    assert d.describe().group_state == "Empty"


def test_positions_in_topics_that_nobody_reads_can_be_deleted() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    d.commit(first, 1)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=(
            OffsetDeleteRequestTopic(
                name="flights",
                partitions=(OffsetDeleteRequestPartition(partition_index=0),),
            ),
        ),
    )
    (topic,) = d.get(request).topics
    assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    d.advance(11_000)
    (topic,) = d.get(request).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    assert not d.shard.log.offsets_of(GROUP)


def test_every_state_can_be_reached() -> None:
    reached = {DraftState.NONE}
    for _ in DraftState:
        reached |= {to for line in DRAFT_GROUP.rows for to in line.to if reached & set(line.states)}
    assert reached == set(DraftState)
