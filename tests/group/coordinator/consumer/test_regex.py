"""Subscriptions by regular expression: checked, resolved, kept up to date (K50)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.broker.coordination.jobs import do_consumer_job
from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import RegexJob
from kohort.group.coordinator.jobs import MatchedTopics
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue


@pytest.fixture
def group() -> ConsumerDialogue:
    dialogue = ConsumerDialogue()
    dialogue.topics(t1=2, t2=1, u=1)
    return dialogue


def pattern(text: str | None, **more: Any) -> dict[str, Any]:
    return {"subscribed_topic_regex": text, "subscribed_topic_names": None, **more}


def test_k50_the_answer_does_not_wait_for_what_an_expression_stands_for(
    group: ConsumerDialogue,
) -> None:
    answer = group.enter("a", **pattern("t.*"))
    assert (answer.member_epoch, group.told(answer)) == (1, {})
    answer = group.heartbeat("a", 1)
    assert (answer.member_epoch, group.told(answer)) == (2, {"t1": {0, 1}, "t2": {0}})


def test_k50_a_whole_name_has_to_match(group: ConsumerDialogue) -> None:
    group.enter("a", **pattern("t"))
    assert group.heartbeat("a", 1).assignment is None
    assert group.group.regexes["t"].topics == frozenset()


def test_k50_names_and_an_expression_add_up(group: ConsumerDialogue) -> None:
    group.enter("a", subscribed_topic_names=("u",), subscribed_topic_regex="t1")
    answer = group.heartbeat("a", 2)
    assert group.told(answer) == {"t1": {0, 1}, "u": {0}}


def test_k50_who_brings_a_known_expression_gets_its_part_at_once(group: ConsumerDialogue) -> None:
    group.settled_by_pattern("a", "t.*")
    answer = group.enter("b", **pattern("t.*"))
    assert answer.member_epoch == 3
    assert group.target("b") != {}


@pytest.mark.parametrize("text", ["(t", "(?=t)", r"(t)\1", "t{2000}"])
def test_k50_what_is_no_expression_is_refused(group: ConsumerDialogue, text: str) -> None:
    code = group.refused("a", 0, held={}, rebalance_timeout_ms=1, subscribed_topic_regex=text)
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION
    group.settled("b", topics=("u",))
    assert group.refused("b", 2, subscribed_topic_regex=text) is (
        ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    assert group.member("b").regex == ""


@pytest.mark.parametrize("text", ["", None])
def test_k50_an_empty_text_means_none(group: ConsumerDialogue, text: str | None) -> None:
    """librdkafka sends an empty one, the Java client null."""
    answer = group.enter("a", "t1", subscribed_topic_regex=text)
    assert group.told(answer) == {"t1": {0, 1}}
    assert group.held_back == []
    assert dict(group.group.regex_subscribers) == {}


def test_k50_taking_an_expression_back_is_a_new_epoch(group: ConsumerDialogue) -> None:
    group.settled_by_pattern("a", "t.*")
    answer = group.heartbeat("a", 2, held={"t1": [0, 1], "t2": [0]}, subscribed_topic_regex="")
    assert group.group.epoch == 3
    assert group.told(answer) == {}
    assert dict(group.group.regexes) == {}


def test_k50_an_expression_nobody_has_any_more_is_forgotten(group: ConsumerDialogue) -> None:
    group.settled_by_pattern("a", "t.*")
    group.enter("b", **pattern("t.*"))
    group.heartbeat("a", -1)
    assert list(group.group.regexes) == ["t.*"]
    group.heartbeat("b", -1)
    assert dict(group.group.regexes) == {}
    assert dict(group.group.regex_subscribers) == {}


def test_k50_new_topics_are_found_but_not_too_often(group: ConsumerDialogue) -> None:
    group.settled_by_pattern("a", "t.*")
    group.topics(t1=2, t2=1, u=1, t3=1)
    group.heartbeat("a", 2)
    assert "t3" not in group.group.topics
    group.advance(10_001)
    group.heartbeat("a", 2)
    assert "t3" in group.group.topics
    answer = group.heartbeat("a", 2)
    assert group.told(answer) == {"t1": {0, 1}, "t2": {0}, "t3": {0}}


def test_k50_a_time_of_day_that_was_set_back_holds_nothing_up(group: ConsumerDialogue) -> None:
    """Nor does the clock of another broker, which resolved the expression before it died."""
    group.settled_by_pattern("a", "t.*")
    group.set_back_ms = 3_600_000
    group.topics(t1=2, t2=1, u=1, t3=1)
    group.heartbeat("a", 2)
    assert "t3" in group.group.topics


def test_k50_a_time_of_day_that_is_put_right_by_little_is_no_reason_to_look_again(
    group: ConsumerDialogue,
) -> None:
    group.settled_by_pattern("a", "t.*")
    group.set_back_ms = 5
    group.topics(t1=2, t2=1, u=1, t3=1)
    group.heartbeat("a", 2)
    assert "t3" not in group.group.topics
    group.advance(10_006)
    group.heartbeat("a", 2)
    assert "t3" in group.group.topics


def test_k50_what_it_stands_for_is_looked_up_again_after_long(group: ConsumerDialogue) -> None:
    group = ConsumerDialogue(group_consumer_regex_refresh_interval_ms=20_000)
    group.topics(t1=1, t2=1)
    group.settled_by_pattern("a", "t.*")
    group.topics(t1=1)
    group.heartbeat("a", 2, held={"t1": [0]})
    assert group.group.regexes["t.*"].topics == {"t1", "t2"}
    group.advance(20_001)
    group.heartbeat("a", 3)
    assert group.group.regexes["t.*"].topics == {"t1"}


def test_k50_an_expression_survives_a_load(group: ConsumerDialogue) -> None:
    group.settled_by_pattern("a", "t.*")
    group.reload()
    assert group.heartbeat("a", 2).assignment is None
    assert group.group.epoch == 2


def test_k50_a_result_of_a_shard_that_is_gone_is_passed_over(group: ConsumerDialogue) -> None:
    group.holds_jobs = True
    group.enter("a", **pattern("t.*"))
    (job,) = group.held_back
    assert isinstance(job, RegexJob)
    group.reload()
    before = len(group.log)
    group.finish(job)
    assert len(group.log) == before


def test_k50_two_may_bring_one_new_expression_at_a_time(group: ConsumerDialogue) -> None:
    group.holds_jobs = True
    answers = [group.enter(name, **pattern("t.*")) for name in ("a", "b")]
    assert [answer.error_code for answer in answers] == [0, 0]
    assert len(group.held_back) == 1
    group.holds_jobs = False
    group.do_jobs()
    group.converge("a", "b")
    assert group.group.state.value == "Stable"
    assert sum(len(each) for name in "ab" for each in group.has(name).values()) == 3


def test_k50_what_a_member_said_last_holds(group: ConsumerDialogue) -> None:
    """However long its first expression takes to resolve: no heartbeat waits for that.

    A member whose connection broke asks again, and may want something else by then. If its first
    request were processed after the second, the outdated subscription would apply.
    """
    group.holds_jobs = True
    group.enter("a", **pattern("t.*"))
    named = {"subscribed_topic_names": ("u",), "subscribed_topic_regex": ""}
    group.beat_token("a", 0, held={}, rebalance_timeout_ms=30_000, **named)
    group.holds_jobs = False
    group.do_jobs()
    assert (group.member("a").topics, group.member("a").regex) == (("u",), "")
    group.converge("a")
    assert group.has("a") == {"u": {0}}
    assert dict(group.group.regexes) == {}


def test_k50_a_second_expression_is_looked_up_when_the_first_is_not_so_new_any_more(
    group: ConsumerDialogue,
) -> None:
    """Kafka resolves a group's expressions at most every ten seconds."""
    group.settled_by_pattern("a", "t.*")
    group.enter("b", **pattern("u"))
    assert group.heartbeat("b", group.member("b").epoch).assignment is None
    assert "u" not in group.group.regexes
    group.advance(10_001)
    group.heartbeat("a", group.member("a").epoch)
    group.converge("a", "b")
    assert group.has("b") == {"u": {0}}


def test_k50_what_another_broker_took_for_an_expression_matches_nothing(
    group: ConsumerDialogue,
) -> None:
    done = do_consumer_job(RegexJob(1, "g", frozenset({"(", "t1"}), group.image))
    assert done == MatchedTopics({"(": frozenset(), "t1": frozenset({"t1"})}, group.image.version)
