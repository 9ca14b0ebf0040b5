"""Assignors that run in a member, at the coordinator: the chosen member, and its result."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import TargetJob
from kohort.group.events import AssignmentAsked, Cause, RebalanceStarted
from kohort.values import replace
from kohort.wire import group_log
from kohort.wire.messages.client_assignors import InstalledMember
from kohort.wire.messages.consumer_group import AssignmentMetadata, ClientAssignor
from tests.group.coordinator.consumer.assignor_dialogue import MINE, AssignorDialogue


def assignor(name: str = "mine", low: int = 0, version: int = 0, high: int = 0) -> ClientAssignor:
    return ClientAssignor(
        name=name, minimum_version=low, version=version, maximum_version=max(high, version)
    )


@pytest.fixture
def group() -> AssignorDialogue:
    return AssignorDialogue()


def test_k60_k61_a_member_makes_the_assignment(group: AssignorDialogue) -> None:
    """The joining heartbeat is answered at once, and asks; the result is the group's target."""
    assert group.asked("a")
    assert not group.is_made()
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    assert group.is_made()
    assert group.target("a") == {"t": {0, 1, 2, 3}}
    answer = group.heartbeat("a", 1)
    assert group.told(answer) == {"t": {0, 1, 2, 3}}
    assert answer.member_epoch == group.group.epoch
    assert answer.assignment_metadata == AssignmentMetadata(assignor="mine", metadata=b"a")
    assert not answer.should_compute_assignment
    assert [each.member for each in group.observed if isinstance(each, AssignmentAsked)] == ["a"]


def test_k61_what_is_prepared_is_all_that_an_assignor_needs(group: AssignorDialogue) -> None:
    group.topics(t=4, u=2)
    group.asked("a")
    group.made("a", {"a": {"t": [0, 3]}})
    group.asked("b", "t", "u", "gone", instance_id="i-b", rack_id="r1")
    answer = group.prepare("a" if group.beats("a") else "b")
    assert answer.error_code == ErrorCode.NONE
    assert (answer.group_epoch, answer.assignor_name) == (group.group.epoch, "mine")
    assert [(t.topic_name, t.num_partitions) for t in answer.topics] == [("t", 4), ("u", 2)]
    a, b = answer.members
    assert (a.member_id, a.version, a.metadata) == ("a", 1, b"load")
    assert group.by_name({each.topic_id: each.partitions for each in a.topic_partitions}) == {
        "t": {0, 3}
    }
    assert (b.member_id, b.instance_id, b.rack_id) == ("b", "i-b", "r1")
    assert b.subscribed_topic_names == ("t", "u")
    assert b.topic_partitions == ()


def test_k60_the_server_assigns_while_one_member_has_no_assignor(group: AssignorDialogue) -> None:
    """A client without an assignor is never asked, and gets no fields about it."""
    assert group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    answer = group.enter("foreign", "t")
    assert (answer.should_compute_assignment, answer.assignment_metadata) == (False, None)
    assert group.is_made()
    assert not group.group.words
    assert {len(group.target(each)["t"]) for each in ("a", "foreign")} == {2}


def test_k60_the_question_is_taken_back_when_a_foreign_member_joins(
    group: AssignorDialogue,
) -> None:
    assert group.asked("a")
    group.enter("foreign", "t")
    assert not group.is_asking()
    assert group.is_made()
    assert not group.beats("a")


def test_k61_prepare_is_refused_when_nobody_can_read_all_metadata_any_more(
    group: AssignorDialogue,
) -> None:
    group.asked("a", client_assignors=(assignor("x", 0, 0, 1),))
    group.asked("b", client_assignors=(assignor("x", 2, 2, 3),))
    assert group.is_asking()
    assert group.prepare("a").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert group.is_made()


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ([assignor("x"), assignor("y")], [assignor("y"), assignor("x")], "x"),
        ([assignor("y"), assignor("x")], [assignor("y"), assignor("x")], "y"),
        ([assignor("x"), assignor("y")], [assignor("y")], "y"),
        ([assignor("x")], [assignor("y")], None),
        # the second member's metadata is too new for the first, and it supports only its own
        # version
        ([assignor("x", 0, 0, 1)], [assignor("x", 2, 2, 3)], None),
        ([assignor("x", 0, 0, 1), assignor("y")], [assignor("x", 2, 2, 3), assignor("y")], "y"),
        ([assignor("x", 0, 0, 1)], [assignor("x", 0, 2, 3)], "x"),
    ],
)
def test_k60_all_members_must_know_it_and_most_prefer_it(
    group: AssignorDialogue,
    first: list[ClientAssignor],
    second: list[ClientAssignor],
    chosen: str | None,
) -> None:
    """KIP-848, as in the classic protocol; one member must support the metadata of all."""
    group.asked("a", client_assignors=tuple(first))
    group.made("a", {})
    group.asked("b", client_assignors=tuple(second))
    asked = next((each for each in ("b", "a") if group.beats(each)), None)
    assert (asked is None) == (chosen is None)
    if asked is not None:
        assert group.prepare(asked).assignor_name == chosen


def test_k60_who_cannot_read_all_metadata_is_not_asked(group: AssignorDialogue) -> None:
    """KIP-268: an old member does not compute for a new one."""
    group.asked("new", client_assignors=(assignor("x", 0, 2, 3),))
    group.made("new", {})
    assert not group.asked("old", client_assignors=(assignor("x", 0, 0, 1),))
    assert not group.beats("old")
    assert group.beats("new")


def test_k60_new_metadata_makes_a_new_assignment(group: AssignorDialogue) -> None:
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    group.converge("a")
    epoch = group.group.epoch
    new = (replace(MINE[0], metadata=b"more load"),)
    answer = group.heartbeat("a", epoch, client_assignors=new)
    assert answer.should_compute_assignment
    assert group.group.epoch == epoch + 1
    started = [each for each in group.observed if isinstance(each, RebalanceStarted)]
    assert started[-1].cause is Cause.SUBSCRIPTION_CHANGED
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    again = group.heartbeat("a", epoch, client_assignors=new)
    assert group.group.epoch == epoch + 1, "what it said already changes nothing"
    assert not again.should_compute_assignment


# ------------------------------------------------------------------------------ the chosen member


def test_k61_the_group_goes_on_meanwhile(group: AssignorDialogue) -> None:
    """No member waits: neither a joining one, nor the chosen one, nor any other."""
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    group.converge("a")
    assert group.asked("b")
    for _ in range(3):
        assert not group.beats("a")
        assert group.has("a") == {"t": {0, 1, 2, 3}}
    assert group.beats("b"), "it is asked until the result is there"
    group.made("b", {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}})
    group.converge("a", "b")
    assert group.has("b") == {"t": {2, 3}}


def test_k61_another_member_is_asked_when_the_one_asked_has_left(group: AssignorDialogue) -> None:
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    assert group.asked("b")
    group.heartbeat("b", -1)
    assert group.beats("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    assert group.is_made()
    assert group.fell_back == []


def test_k61_no_result_in_time_and_the_server_assigns(group: AssignorDialogue) -> None:
    group.asked("a")
    group.prepare("a")
    group.advance(group.config.group_consumer_client_assignment_timeout_ms - 1)
    assert not group.is_made()
    group.advance(1)
    assert group.is_made()
    assert group.target("a") == {"t": {0, 1, 2, 3}}
    assert group.fell_back == ["no assignment in time"]
    late = group.install("a", {"a": {"t": [0]}})
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.target("a") == {"t": {0, 1, 2, 3}}


def test_k61_the_time_is_at_most_the_members_rebalance_timeout(group: AssignorDialogue) -> None:
    """KIP-848: it starts when the member is asked."""
    group.asked("a", rebalance_timeout_ms=2_000)
    group.advance(1_999)
    assert not group.is_made()
    group.advance(1)
    assert group.is_made()


def test_k61_no_capable_member_in_time_and_the_server_assigns(group: AssignorDialogue) -> None:
    """The only member that supports all metadata stops sending heartbeats."""
    group.asked("new", client_assignors=(assignor("x", 0, 2, 3),))
    group.made("new", {})
    assert not group.asked("old", client_assignors=(assignor("x", 0, 0, 1),))
    assert group.is_asking()
    group.advance(10_000)
    assert group.is_made()


def test_k61_who_gave_no_assignment_is_not_asked_again(group: AssignorDialogue) -> None:
    """Until it reports other assignors; other members are asked."""
    group.asked("a")
    group.advance(10_000)
    assert group.asked("b")
    group.prepare("b")
    group.install("b", {}, error=1)
    assert group.fell_back == ["no assignment in time", "the member's assignor failed"]
    group.topics(t=5)
    assert not group.beats("a")
    assert not group.beats("b")
    assert group.is_made()
    new = (replace(MINE[0], metadata=b"mended"),)
    group.heartbeat("a", group.member("a").epoch, client_assignors=new)
    assert group.beats("a")


def test_k61_a_group_that_is_empty_again_asks_nobody(group: AssignorDialogue) -> None:
    group.asked("a")
    group.heartbeat("a", -1)
    group.advance(60_000)
    assert group.group.state.value == "Empty"
    assert not group.is_asking()


def test_k61_a_deleted_group_is_forgotten(group: AssignorDialogue) -> None:
    group.asked("a")
    group.heartbeat("a", -1)
    assert group.delete() is ErrorCode.NONE
    assert not group.is_asking()
    assert group.asked("b")


# ----------------------------------------------------------------------------------- prepare


def test_k61_prepare_is_for_who_was_asked(group: AssignorDialogue) -> None:
    """The errors of KIP-848, in its order."""
    group.asked("a")
    group.made("a", {})
    group.asked("b")
    code = group.prepare("a", 1, group_id="nobody").error_code
    assert code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.prepare("stranger", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.prepare("b", 99).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert group.prepare("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.prepare("b", 1, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert group.is_asking(), "none of that changes anything"
    assert group.prepare("b").error_code == ErrorCode.NONE


def test_k61_a_lost_answer_is_asked_for_again(group: AssignorDialogue) -> None:
    """The group as sent last applies."""
    group.asked("a")
    group.prepare("a")
    group.asked("b")
    group.prepare("a")
    assert group.install("a", {"b": {"t": [0, 1, 2, 3]}}).error_code == ErrorCode.NONE
    assert group.target("b") == {"t": {0, 1, 2, 3}}


# ----------------------------------------------------------------------------------- install


def wrong_results() -> list[Any]:
    unknown, invalid = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_REQUEST
    return [
        pytest.param({"stranger": {"t": [0]}}, {}, unknown, id="a stranger"),
        pytest.param({"a": {"u": [0]}}, {}, invalid, id="not subscribed"),
        pytest.param({"a": {"t": [4]}}, {}, invalid, id="no such partition"),
        pytest.param({"a": {"t": [-1]}}, {}, invalid, id="no partition at all"),
        pytest.param({"a": {"t": [0, 1]}, "b": {"t": [1]}}, {}, invalid, id="twice"),
        pytest.param({}, {"group_epoch": 99}, ErrorCode.STALE_MEMBER_EPOCH, id="another epoch"),
    ]


@pytest.mark.parametrize(("given", "more", "code"), wrong_results())
def test_k61_a_result_that_does_not_fit_the_group_is_refused(
    group: AssignorDialogue, given: dict[str, Any], more: dict[str, Any], code: ErrorCode
) -> None:
    """The server then assigns at once."""
    group.topics(t=4, u=1)
    group.asked("a")
    group.made("a", {})
    group.asked("b", "t", "u")
    group.prepare("b")
    answer = group.install("b", given, **more)
    assert answer.error_code == code
    assert answer.error_message
    assert group.is_made()
    assert len(group.fell_back) == 1
    assert group.target("a")["t"] | group.target("b")["t"] == {0, 1, 2, 3}


def test_k61_a_partition_that_is_given_twice_is_named_with_its_members(
    group: AssignorDialogue,
) -> None:
    group.topics(t=4)
    group.asked("a")
    group.made("a", {})
    group.asked("b", "t")
    group.prepare("b")
    answer = group.install("b", {"a": {"t": [0, 1]}, "b": {"t": [1]}})
    assert answer.error_message == "t-1 is given to two members: a and b."


def test_k61_a_member_listed_twice_is_refused(group: AssignorDialogue) -> None:
    group.asked("a")
    group.prepare("a")
    member = group_member(group, "a", {"t": [0]})
    answer = group.install("a", {}, members=(member, member))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.is_made()


def group_member(group: AssignorDialogue, member_id: str, held: Any, metadata: bytes = b"") -> Any:
    return InstalledMember(
        member_id=member_id, topic_partitions=group.by_id(held), metadata=metadata
    )


def test_k61_metadata_of_a_result_is_bounded(group: AssignorDialogue) -> None:
    group.asked("a")
    group.prepare("a")
    member = group_member(group, "a", {"t": [0]}, bytes(64 * 1024 + 1))
    assert group.install("a", {}, members=(member,)).error_code == ErrorCode.INVALID_REQUEST
    assert group.is_made()


def test_k61_install_before_prepare_is_no_result(group: AssignorDialogue) -> None:
    group.asked("a")
    answer = group.install("a", {"a": {"t": [0]}})
    assert answer.error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert group.is_made()


def test_k61_install_is_for_who_was_asked(group: AssignorDialogue) -> None:
    """Results of other members change nothing."""
    group.asked("a")
    group.made("a", {})
    group.asked("b")
    group.prepare("b")
    size = len(group.log)
    assert group.install("a", {"a": {"t": [0]}}).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stale = group.install("b", {"a": {"t": [0]}}, member_epoch=99)
    assert stale.error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert len(group.log) == size
    assert group.is_asking()


def test_k61_who_left_meanwhile_gets_nothing(group: AssignorDialogue) -> None:
    """The result is checked against the group as it was sent; a newer epoch follows anyway."""
    group.asked("a")
    group.asked("b")
    group.prepare("a")
    epoch = group.group.epoch
    group.heartbeat("b", -1)
    answer = group.install("a", {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}, group_epoch=epoch)
    assert answer.error_code == ErrorCode.NONE
    assert set(group.group.target) == {"a"}
    assert not group.is_made()
    assert group.beats("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    assert group.is_made()


def test_k61_who_joined_meanwhile_is_in_the_next_one(group: AssignorDialogue) -> None:
    group.asked("a")
    group.prepare("a")
    epoch = group.group.epoch
    group.asked("b")
    group.install("a", {"a": {"t": [0, 1, 2, 3]}}, group_epoch=epoch)
    assert not group.is_made()
    assert group.beats("b")
    assert {each.member_id for each in group.prepare("b").members} == {"a", "b"}


def test_k61_a_static_member_that_was_replaced_meanwhile_gets_its_part(
    group: AssignorDialogue,
) -> None:
    group.asked("a")
    group.asked("b", instance_id="i")
    group.prepare("a")
    epoch = group.group.epoch
    group.heartbeat("b", -2, instance_id="i")
    group.enter("b2", "t", instance_id="i", client_assignors=MINE)
    group.install("a", {"a": {"t": [0]}, "b": {"t": [1, 2, 3]}}, group_epoch=epoch)
    assert group.target("b2") == {"t": {1, 2, 3}}


# ------------------------------------------------------------------------------- limits and loads


@pytest.mark.parametrize(
    "assignors",
    [
        tuple(assignor(f"a{number}") for number in range(17)),
        (ClientAssignor(name="x", metadata=bytes(64 * 1024)),),
        (assignor("x"), assignor("x")),
        (assignor(" "),),
        (ClientAssignor(name="x", minimum_version=1, version=0, maximum_version=2),),
        (ClientAssignor(name="x", minimum_version=1, version=3, maximum_version=2),),
    ],
    ids=["too many", "too large", "twice", "no name", "below its range", "above its range"],
)
def test_k60_assignors_that_make_no_sense_are_refused(
    group: AssignorDialogue, assignors: tuple[ClientAssignor, ...]
) -> None:
    answer = group.enter("a", "t", client_assignors=assignors)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not group.log


def test_k60_a_group_too_large_to_be_sent_is_the_servers(group: AssignorDialogue) -> None:
    """Encoding it into one response would delay other groups."""
    group.topics(t=250_000)
    group.holds_jobs = True
    joining = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ("t",), "held": {}}
    group.beat_token("a", 0, client_assignors=MINE, **joining)
    (job,) = group.held_back
    assert isinstance(job, TargetJob)


def test_k60_what_all_members_say_together_is_bounded() -> None:
    group = AssignorDialogue(group_max_bytes=1_000)
    large = (replace(MINE[0], metadata=bytes(900)),)
    assert group.asked("a", client_assignors=large)
    group.made("a", {})
    assert not group.asked("b", client_assignors=large)
    assert group.is_made()


def test_k60_k61_a_load_brings_assignors_and_words_back(group: AssignorDialogue) -> None:
    """They are in tagged fields of the log; the question is not, and is asked again."""
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    group.topics(t=5)
    assert group.beats("a")
    group.reload()
    assert group.member("a").client_assignors == MINE
    assert group.group.words["a"].metadata == b"a"
    assert not group.is_asking()
    assert group.beats("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3, 4]}})
    assert group.is_made()


def test_k60_groups_without_assignors_of_their_own_write_what_kafka_writes(
    group: AssignorDialogue,
) -> None:
    group.enter("foreign", "t")
    group.converge("foreign")
    records = [group_log.decode_record(*pair) for pair in group.log]
    assert all(b"mine" not in (value or b"") for _, value in group.log)
    for record in records:
        assert record is not None
        for tagged in ("client_assignors", "assignment_metadata"):
            assert not getattr(record.value, tagged, None)


def test_k61_the_server_takes_back_what_a_member_said(group: AssignorDialogue) -> None:
    """Data of one assignor is not sent with the result of another."""
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    group.converge("a")
    group.topics(t=4, u=1)
    group.heartbeat("a", group.member("a").epoch, client_assignors=())
    assert group.is_made()
    assert not group.group.words


def test_k61_who_asks_hears_which_assignor_made_the_assignment(group: AssignorDialogue) -> None:
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    assert group.describe_group().assignor_name == "mine"
    group.enter("foreign", "t")
    assert group.describe_group().assignor_name == "uniform"


def test_k61_an_interval_between_targets_holds_for_members_too() -> None:
    """KIP-1263."""
    group = AssignorDialogue(group_consumer_assignment_interval_ms=1_000)
    group.asked("a")
    group.made("a", {"a": {"t": [0, 1, 2, 3]}})
    group.topics(t=5)
    assert not group.beats("a")
    group.advance(1_000)
    assert group.beats("a")
