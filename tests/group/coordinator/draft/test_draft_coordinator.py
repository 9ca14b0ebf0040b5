"""The coordinator of the draft protocol, paragraph by paragraph (docs/internals/draft.md)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.shard import Shard
from kohort.group.events import Cause, MemberLeft, RebalanceStarted
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.draft.draft_dialogue import DraftDialogue, owned

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
FLIGHTS = [("flights", number) for number in range(4)]


def causes(d: DraftDialogue) -> list[Cause]:
    return [event.cause for event in d.observed if isinstance(event, RebalanceStarted)]


# -------------------------------------------------------------------- the states of the coordinator


def test_d1_a_coordinator_that_is_down_or_catches_up_serves_nobody() -> None:
    d = DraftDialogue()
    shard = Shard(d.config)
    for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        for request in (
            DraftHeartbeatRequest(group_id=GROUP, group_generation_id=1, consumer_id="a"),
            DraftJoinGroupRequest(
                group_id=GROUP,
                consumer_host="h",
                session_timeout_ms=10_000,
                heartbeat_frequency=3,
                topics=(),
                consumer_id="",
            ),
        ):
            arrived = RequestArrived(token=1, request=request, version=0)
            (reply,) = shard.decide(arrived, 0).replies
            assert reply.response.error_code == code  # type: ignore[attr-defined]  # both have one
        if code is ErrorCode.NOT_COORDINATOR:
            shard.load_started()


def test_d2_a_coordinator_that_has_loaded_accepts_a_ping_as_normal() -> None:
    d = DraftDialogue()
    first, second = d.steady("a", "b")
    d.reload()
    assert d.state == "Steady"
    assert d.ping(first, 2) == d.ping(second, 2) == ErrorCode.NONE
    assert causes(d) == [Cause.MEMBER_JOINED] * 2


def test_d3_who_finds_the_new_coordinator_too_late_is_a_new_consumer() -> None:
    d = DraftDialogue()
    late, other = d.steady("a", "b")
    d.reload()
    d.advance(9_000)
    assert d.ping(other, 2) == ErrorCode.NONE
    d.advance(2_000)  # the late one was marked dead
    assert d.ping(late, 2) == UNKNOWN
    assert d.answers[d.ask_join(late, host="a")].error_code == UNKNOWN
    token = d.ask_join(host="a")
    answer, _ = d.joined(token, d.ask_join(other, host="b"))
    assert answer.consumer_id == "g-a-3"


def test_d4_prepare_calls_everybody_back_by_their_heartbeats_and_waits_for_their_joins() -> None:
    d = DraftDialogue()
    first, second = d.steady("a", "b")
    token = d.ask_join(host="c")
    assert d.state == "PrepareForRebalance"
    assert d.ping(first, 2) == d.ping(second, 2) == ILLEGAL
    d.ask_join(first, host="a")
    assert d.ping(second, 2) == ILLEGAL
    assert d.state == "PrepareForRebalance"
    assert token not in d.answers
    d.ask_join(second, host="b")
    assert d.state == "Rebalancing"


def test_d5_rebalancing_increments_the_generation_gives_ids_and_assigns() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    new = d.ask_join(host="b")
    known = d.ask_join(first, host="a")
    assert d.state == "Rebalancing"
    assert d.generation == 2
    assert not {new, known} & d.answers.keys()  # no response before the log has the records
    answers = d.joined(new, known)
    assert d.state == "Steady"
    assert [answer.group_generation_id for answer in answers] == [2, 2]
    assert [answer.consumer_id for answer in answers] == ["g-b-2", "g-a-1"]
    assert sorted(owned(answers[0]) + owned(answers[1])) == FLIGHTS


def test_d5_the_assignors_are_kafkas_over_the_topics_of_each_consumer() -> None:
    d = DraftDialogue(draft_assignor="roundrobin")
    new, both = d.ask_join(), d.ask_join(topics=("delays", "flights", "missing"))
    d.job()
    d.ask_join("g-host-1")
    d.work()
    stored = d.shard.log.draft_groups[GROUP]
    assert stored.assignor == "roundrobin"
    assert dict(stored.topics) == {"flights": 4, "delays": 2}
    assert [len(each) for _, each in sorted(stored.owned.items())] == [2, 4]
    assert {new, both} <= d.answers.keys()


def test_d6_steady_accepts_heartbeats_and_commits_of_all_consumers() -> None:
    d = DraftDialogue()
    for consumer_id in d.steady("a", "b"):
        assert d.ping(consumer_id, 2) == ErrorCode.NONE
        assert d.commit(consumer_id, 2) == ErrorCode.NONE
    assert d.shard.log.offsets_of(GROUP)


@pytest.mark.parametrize("state", ["PrepareForRebalance", "Rebalancing"])
def test_d6_commits_are_accepted_only_in_steady(state: str) -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    d.ask_join(host="b")
    if state == "Rebalancing":
        d.ask_join(first, host="a")
    assert d.state == state
    for generation in (1, 2):
        assert d.commit(first, generation) == ILLEGAL
    assert not d.shard.log.offsets_of(GROUP)


def test_d6_a_commit_of_another_generation_is_refused_and_one_of_this_keeps_alive() -> None:
    d = DraftDialogue()
    first, _ = d.steady("a", "b")
    assert d.commit(first, 1) == ILLEGAL
    for _ in range(4):
        d.advance(4_000)
        assert d.commit(first, d.generation) == (ErrorCode.NONE if d.state == "Steady" else ILLEGAL)
        if d.state != "Steady":
            d.joined(d.ask_join(first, host="a"))
    assert [e.member for e in d.observed if isinstance(e, MemberLeft)] == ["g-b-2"]


def test_a_tool_resets_positions_only_while_nobody_is_there() -> None:
    d = DraftDialogue(offsets_retention_check_interval_ms=10**9)
    d.steady("a")
    assert d.commit("", -1) == UNKNOWN
    d.advance(11_000)
    assert d.state == "None"
    assert d.commit("", -1, offset=0) == ErrorCode.NONE
    assert d.commit("g-a-1", 1) == UNKNOWN


# ------------------------------------------------------------------------------------ consumer ids


def test_d7_the_id_is_in_the_very_first_join_response() -> None:
    d = DraftDialogue()
    (answer,) = d.joined(d.ask_join(host="flights.example"))
    assert answer.error_code == ErrorCode.NONE
    assert answer.consumer_id == "g-flights.example-1"
    assert owned(answer) == FLIGHTS


@pytest.mark.parametrize("sender", ["", "stranger", "g-a-2"])
def test_d7_an_id_that_is_not_in_the_group_is_an_unknown_consumer(sender: str) -> None:
    d = DraftDialogue()
    d.steady("a")
    assert d.ping(sender, 1) == UNKNOWN
    assert d.commit(sender, 1) == UNKNOWN
    assert d.state == "Steady"


def test_d7_in_a_group_that_does_not_exist_everybody_is_unknown() -> None:
    d = DraftDialogue()
    assert d.ping("a", 1) == UNKNOWN
    assert d.answers[d.ask_join("a")].error_code == UNKNOWN


def test_d8_a_consumer_keeps_its_id_through_every_rebalance() -> None:
    d = DraftDialogue()
    ids = d.steady("a", "b", "c")
    assert ids == ["g-a-1", "g-b-2", "g-c-3"]
    assert sorted(d.shard.log.draft_groups[GROUP].consumers) == ids


def test_d8_a_join_whose_answer_was_lost_is_answered_again_and_disturbs_nobody() -> None:
    d = DraftDialogue()
    first, second = d.steady("a", "b")
    (lost,) = d.joined(d.ask_join(second, host="b"))
    assert (lost.consumer_id, lost.group_generation_id) == (second, 2)
    assert owned(lost) == FLIGHTS[2:]
    assert d.ping(first, 2) == ErrorCode.NONE


def test_d8_a_join_that_is_sent_again_takes_the_place_of_the_one_that_waits() -> None:
    d = DraftDialogue()
    first, _ = d.steady("a", "b")
    d.ask_join(host="c")
    given_up = d.ask_join(first, host="a")
    again = d.ask_join(first, host="a")
    assert d.answers[given_up].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again not in d.answers


def test_d9_ids_are_given_out_when_all_existing_consumers_have_joined() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    tokens = [d.ask_join(host=host) for host in ("b", "c", "b")]
    assert not set(tokens) & d.answers.keys()
    answers = d.joined(d.ask_join(first, host="a"), *tokens)
    assert [each.consumer_id for each in answers] == ["g-a-1", "g-b-2", "g-c-3", "g-b-4"]


def test_d9_who_comes_while_the_assignment_is_made_is_in_the_next_generation() -> None:
    d = DraftDialogue()
    first = d.ask_join(host="a")
    late = d.ask_join(host="b")
    d.job()
    assert d.answers[first].group_generation_id == 1
    assert late not in d.answers
    assert d.state == "PrepareForRebalance"
    _, answer = d.joined(d.ask_join("g-a-1", host="a"), late)
    assert (answer.consumer_id, answer.group_generation_id) == ("g-b-2", 2)


def test_d9_a_number_is_never_given_out_twice() -> None:
    d = DraftDialogue()
    d.steady("a")
    d.advance(11_000)
    assert d.state == "None"
    d.reload()
    (answer,) = d.joined(d.ask_join(host="a"))
    assert answer.consumer_id == "g-a-2"


def test_d10_a_client_that_drops_its_id_never_lets_the_group_settle() -> None:
    """It cannot send a heartbeat without an id, so it joins each time as a new consumer."""
    d = DraftDialogue()
    honest, _ = d.steady("honest", "forgetful")
    seen = set()
    for _ in range(5):
        forgetful = d.ask_join(host="forgetful")
        again = d.ask_join(honest, host="honest")
        assert d.state == "PrepareForRebalance"  # waits for its previous id until it is dead
        d.advance(10_000)
        _, answer = d.joined(again, forgetful)
        seen.add(answer.consumer_id)
        assert d.state == "Steady"  # until it joins again
    assert len(seen) == 5
    assert d.generation == 7
    left = [event for event in d.observed if isinstance(event, MemberLeft)]
    assert len(left) == 5
    assert {event.member for event in left}.isdisjoint({honest})


def test_d10_a_client_that_keeps_its_id_lets_the_same_group_settle() -> None:
    d = DraftDialogue()
    ids = d.steady("honest", "careful")
    for _ in range(20):
        d.advance(3_000)
        assert [d.ping(each, 2) for each in ids] == [ErrorCode.NONE] * 2
    assert d.generation == 2


def test_d11_an_unknown_consumer_cannot_join_and_disturbs_nobody_else() -> None:
    d = DraftDialogue()
    ids = d.steady("a", "b")
    before = len(d.observed)
    answer = d.answers[d.ask_join("g-c-9", host="c")]
    assert (answer.error_code, owned(answer)) == (UNKNOWN, [])
    assert d.state == "Steady"
    assert [d.ping(each, 2) for each in ids] == [ErrorCode.NONE] * 2
    assert len(d.observed) == before
