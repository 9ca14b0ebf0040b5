"""The log when a member drops out of its group: what, where, why, and what comes next."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, Consumer, RebalanceListener, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client.consumer.aio import internals_of
from kohort.errors import CommitFailedError, ErrorCode, KafkaError
from kohort.group.member.classic.session import ClassicMemberState as S
from tests.broker.processes import eventually
from tests.client.loops import on_a_loop
from tests.client.watched_group import case
from tests.real_kafka import foreign
from tests.system.clients.ours import settings_of

SHORT_MS = 700
NEVER_MS = 3_600_000

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100},
    "consumer": {"group_protocol": "consumer"},
}
both = pytest.mark.parametrize("protocol", PROTOCOLS)


def member(servers: str, topic: str, protocol: str, **settings: Any) -> Consumer:
    """A member whose group has the name of its topic."""
    given = {"client_id": "late", "enable_auto_commit": False, **PROTOCOLS[protocol], **settings}
    return Consumer(topic, bootstrap_servers=servers, group_id=topic, **given)


def lines(caplog: pytest.LogCaptureFixture, word: str, level: int = logging.WARNING) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if word in each.getMessage() and each.levelno >= level
    ]


def polled(consumer: Consumer, until: Any, what: str) -> None:
    def done() -> bool:
        consumer.poll(20)
        return bool(until())

    eventually(done, what)


def has(text: str, *words: str) -> None:
    for word in words:
        assert word in text, (word, text)


class Revoked(RebalanceListener):
    """Records the revoked partitions."""

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions |= partitions

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


class Waits:
    """Gives up partitions only on command."""

    def __init__(self) -> None:
        self.is_called, self.may_return = asyncio.Event(), asyncio.Event()

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.is_called.set()
        await self.may_return.wait()

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        pass


@both
def test_who_polls_too_late_reads_why_in_the_log_and_in_the_error(
    bootstrap: str, topic: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with member(bootstrap, topic, protocol, max_poll_interval_ms=SHORT_MS) as consumer:
        polled(consumer, consumer.assignment, "partitions")
        caplog.clear()  # on a slow machine it may have been late before
        eventually(lambda: bool(lines(caplog, "is out of the group")), "the end of the wait")
        (out,) = lines(caplog, "is out of the group")
        why = f"the application did not poll within max.poll.interval.ms ({SHORT_MS} ms)"
        has(out, f"group {topic}: member ", "late", why, "max.poll.records")
        has(out, "joins again at the next poll")
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit({TopicPartition(topic, 0): 1})
        has(str(caught.value), f"commit to group {topic}", why, "max.poll.records", "Poll to join")
        polled(consumer, lambda: lines(caplog, " lost "), "what is lost")
        name = out.partition(" is out ")[0]
        has(lines(caplog, " lost ")[0], f"{name} lost {topic}-0", why, "from the last commit")


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
@on_a_loop
async def test_who_was_removed_reads_what_may_have_happened(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with case(protocol) as c:
        subject = await c.start()
        other = c.another()
        await c.poll_until_shared()
        gone = subject.member_id
        await c.remove(subject, by=other)
        await c.poll_until(lambda: bool(c.notes.all_of("lost")))
        (out,) = lines(caplog, "is out of the group")
        session = "the session timeout, which" if protocol == "consumer" else "session.timeout.ms"
        has(out, f"group {c.group}: member {gone}", "the coordinator has removed it", session)
        has(out, "UNKNOWN_MEMBER_ID", "by an administrator", "joins again")
        has(out, "max.poll.interval.ms")
        late = "it did not join again within max.poll.interval.ms (300000 ms, or the longest of"
        assert (late in out) == (protocol != "consumer")
        has(lines(caplog, " lost ")[0], f"member {gone}", "as the coordinator has removed it;")
        await c.poll_until_shared()


@pytest.mark.parametrize("was_removed", [False, True], ids=["at first", "after a removal"])
def test_who_closes_in_a_rebalance_reads_the_reason_of_that_loss(
    bootstrap: str, was_removed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The second member does not learn of the second rebalance, which waits for it."""
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    deaf = {"session_timeout_ms": 180_000, "heartbeat_interval_ms": 60_000}
    topic = foreign.new_topic(bootstrap, 2)
    given_up = Revoked()
    with (
        member(bootstrap, topic, "classic", **settings, **deaf) as second,
        member(bootstrap, topic, "classic", **settings) as first,
    ):
        first.subscribe([topic], listener=given_up)
        polled(first, first.assignment, "partitions")
        if was_removed:
            with AdminClient(bootstrap_servers=bootstrap) as admin:
                admin.remove_group_members(topic, [first.member_id])
            polled(first, lambda: lines(caplog, " lost "), "what is lost")
            polled(first, lambda: len(first.assignment()) == 2, "all partitions again")
        caplog.clear()
        second.poll(0)
        polled(first, lambda: given_up.partitions, "what the second member gets")
        polled(first, lambda: _is_joining(first), "the second rebalance")
        first.close()
        (lost,) = lines(caplog, " lost ")
        has(lost, f"lost {topic}-", "as it left in the middle of a rebalance;")


def _is_joining(consumer: Consumer) -> bool:
    membership = internals_of(consumer._async).core.membership
    return membership is not None and membership.member.state is S.PREPARING_REBALANCE


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
@on_a_loop
async def test_who_is_removed_while_it_closes_reads_that(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.client")
    async with case(protocol) as c:
        subject, listener = c.new(c.notes), Waits()
        other = c.another()
        await c.poll_until_shared()
        subject.subscribe([c.topic], listener=listener)
        closing = asyncio.create_task(subject.close())
        await listener.is_called.wait()
        await c.remove(subject, by=other)
        heard = partial(lines, caplog, " leaves", logging.INFO)
        await asyncio.to_thread(eventually, lambda: bool(heard()), "that it was removed")
        listener.may_return.set()
        await closing
        (lost,) = lines(caplog, " lost ")
        has(lost, f"lost {c.topic}-", "as the coordinator has removed it;")


def test_settings_with_which_a_rebalance_is_heard_of_too_late_are_warned_of_once(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    late = {"heartbeat_interval_ms": 5_000, "max_poll_interval_ms": 4_000}
    with member(bootstrap, topic, "classic", **late) as consumer:
        polled(consumer, consumer.assignment, "partitions")
        consumer.unsubscribe()
        consumer.subscribe([topic])
        polled(consumer, consumer.assignment, "partitions again")
    (warning,) = lines(caplog, "is not above heartbeat.interval.ms (5000 ms)")
    has(warning, f"group {topic}: max.poll.interval.ms (4000 ms)", "Lower heartbeat.interval.ms")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_poll_interval_ms": 101, "heartbeat_interval_ms": 100},
        {"max_poll_interval_ms": 100, "group_protocol": "consumer"},
        {},
    ],
)
def test_settings_with_which_a_rebalance_is_heard_of_in_time_are_not_warned_of(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        EmbeddedBroker() as broker,
        Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g", **settings) as it,
    ):
        broker.create_topic("t")
        polled(it, it.assignment, "partitions")
    assert not lines(caplog, "heartbeat.interval.ms")


def test_who_is_fenced_reads_of_its_instance_id(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with member(bootstrap, topic, "classic", group_instance_id="one") as first:
        polled(first, first.assignment, "partitions")
        with member(bootstrap, topic, "classic", group_instance_id="one") as second:
            polled(second, second.assignment, "partitions")
            with pytest.raises(KafkaError, match=r"group\.instance\.id one") as caught:
                polled(first, lambda: False, "that it is fenced")
            assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID
    (line,) = lines(caplog, "cannot continue", logging.ERROR)
    has(line, f"group {topic}: member one-", "of client late", "FENCED_INSTANCE_ID")
    has(line, "another consumer has its group.instance.id one", "until unsubscribe")


def test_who_finds_its_instance_id_taken_reads_by_whom(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with member(bootstrap, topic, "consumer", group_instance_id="one") as first:
        polled(first, first.assignment, "partitions")
        with member(bootstrap, topic, "consumer", group_instance_id="one") as second:
            with pytest.raises(KafkaError) as caught:
                polled(second, lambda: False, "that it is refused")
            assert caught.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
    (line,) = lines(caplog, "cannot continue", logging.ERROR)
    has(line, f"group {topic}: ", "of client late", "UNRELEASED_INSTANCE_ID", "has crashed")


def test_who_commits_by_hand_into_a_living_group_is_told_so(bootstrap: str, topic: str) -> None:
    place = TopicPartition(topic, 0)
    with (
        member(bootstrap, topic, "classic") as consumer,
        Consumer(bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False) as other,
    ):
        polled(consumer, consumer.assignment, "partitions")
        other.assign([place])
        with pytest.raises(CommitFailedError, match="the group has members, and only they") as it:
            other.commit({place: 1})
        has(str(it.value), f"commit to group {topic}", "another group.id")


def test_a_poll_without_topics_says_so_once(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(bootstrap_servers=bootstrap, client_id="idle") as consumer:
        for _ in range(3):
            assert consumer.poll(10) == {}
        (line,) = lines(caplog, "poll returns nothing")
        has(line, "consumer idle: ", "subscribe or assign")
        consumer.assign([TopicPartition(topic, 0)])
    caplog.clear()
    settings = settings_of(bootstrap, topic, {"group_protocol": "classic"})
    with Consumer(topic, **settings) as consumer:
        polled(consumer, consumer.assignment, "partitions")
    assert not lines(caplog, "poll returns nothing")


def draft(servers: str, topic: str, **settings: Any) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=topic,
        group_protocol="draft",
        session_timeout_ms=1_000,
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
        **settings,
    )


def test_a_member_of_the_draft_reads_it_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path, protocols=("classic", "consumer", "draft")) as broker:
        topic = foreign.new_topic(broker.bootstrap_servers)
        with draft(broker.bootstrap_servers, topic, max_poll_interval_ms=SHORT_MS) as consumer:
            polled(consumer, consumer.assignment, "partitions")
            with draft(broker.bootstrap_servers, topic) as other:
                polled(other, other.assignment, "what the first one lost")
            with pytest.raises(CommitFailedError) as caught:
                consumer.commit({TopicPartition(topic, 0): 1})
            has(str(caught.value), f"max.poll.interval.ms ({SHORT_MS} ms)", "session.timeout.ms")
            polled(consumer, lambda: lines(caplog, " lost "), "what is lost")
    out = lines(caplog, "is out of the group")[0]
    has(out, f"group {topic}: member ", "the coordinator has removed it", "UNKNOWN_MEMBER_ID")
