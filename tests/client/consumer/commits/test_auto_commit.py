"""Auto-commit while the coordinator refuses commits for a time, around a revocation."""

from __future__ import annotations

import asyncio

import pytest

from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.consumer.commits.auto_commit import leaving_ms
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.group.subscription import Subscription, encode_subscription
from kohort.wire.messages.membership import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.peer import Peer
from tests.client.cooperative_scenarios import state_of
from tests.client.loops import on_a_loop
from tests.client.refusing_proxy import Offsets
from tests.client.watched_group import PARTITIONS, RECORDS, Case, case, every_protocol


def always(_offsets: Offsets) -> bool:
    return True


@every_protocol
@on_a_loop
async def test_l32_a_commit_before_a_revocation_goes_on_behind_the_polls(protocol: str) -> None:
    """For longer than a request timeout, while the member's heartbeats continue."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        c.another()
        await c.until_refused()
        polls, heartbeats = c.polls, c.proxy.heartbeats
        await c.until_refused(6)
        assert c.polls > polls + 3
        assert c.proxy.heartbeats > heartbeats
        assert subject.assignment() == c.everything
        assert [what for what, _ in c.notes.told] == ["assigned"]
        c.proxy.refuses = lambda _: False
        await c.poll_until_shared()
        given_up = c.everything - subject.assignment()
        assert {each.partition for each in given_up} <= c.proxy.stored[0].keys()
        c.produce()
        await c.poll_until(lambda: len(c.seen) == 2 * PARTITIONS * RECORDS)
        assert len(set(c.seen)) == len(c.seen)


@every_protocol
@on_a_loop
async def test_l32_kept_partitions_are_read_while_a_revocation_waits(protocol: str) -> None:
    """The others are not: their offsets are being committed."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        c.another()
        await c.until_refused()
        going = c.proxy.refused[0].keys()
        c.seen.clear()
        c.produce()
        kept = {each for each in subject.assignment() if each.partition not in going}
        assert len(kept) == (0 if protocol == "eager" else 2)
        await c.poll_until(lambda: len(c.seen) == len(kept) * RECORDS)
        await c.until_refused(len(c.proxy.refused) + 2)
        assert {partition for partition, _ in c.seen} == kept


@every_protocol
@on_a_loop
async def test_l3_a_poll_that_is_cancelled_takes_no_call_along(protocol: str) -> None:
    """Nor does an unsubscribe: the next call waits for the same commit."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        other = c.another()
        await c.until_refused()
        for call in (subject.poll(60_000), subject.unsubscribe()):
            waiting = asyncio.ensure_future(call)
            refused = len(c.proxy.refused)
            while len(c.proxy.refused) == refused:
                await other.poll(20)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert subject.assignment() == c.everything
        c.proxy.refuses = lambda _: False
        subject.subscribe([c.topic], listener=c.notes)
        await c.poll_until_shared()
        first = c.notes.told[1]
        assert first[0] == "revoked"
        assert {each.partition for each in first[1]} <= c.proxy.stored[0].keys()


@every_protocol
@on_a_loop
async def test_l3_who_is_removed_meanwhile_has_lost_and_commits_no_more(protocol: str) -> None:
    """The others already have the partitions, and may have read further."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        other = c.another()
        await c.until_refused()
        await c.remove(subject, by=other)
        await c.poll_until(lambda: c.notes.all_of("lost") == c.everything)
        assert not c.notes.all_of("revoked")
        c.proxy.refuses = lambda _: False
        await c.poll_until_shared()
        assert c.proxy.stored == []


@every_protocol
@on_a_loop
async def test_who_closes_does_not_wait_for_ever(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For a commit that the coordinator does not accept; the group then gets the partitions."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        await subject.close()
        c.members.remove(subject)
        assert c.notes.told[-1] == ("revoked", c.everything)
        assert c.proxy.refused
        assert "was given up before it was answered, so records will be read again" in (caplog.text)
        other = c.another()
        await c.poll_until(lambda: other.assignment() == c.everything)
        assert all(at < 0 for at in c.committed().values())


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
@on_a_loop
async def test_a_later_attempt_leaves_out_what_was_given_up_meanwhile(protocol: str) -> None:
    """KAFKA-18641. Another member has read further there: its progress would be undone."""
    async with case(protocol) as c:
        c.proxy.refuses = lambda offsets: len(offsets) == PARTITIONS
        subject = await c.start(auto_commit_interval_ms=100)
        await c.until_refused()
        c.another()
        await c.poll_until_shared()
        c.proxy.refuses = lambda _: False
        c.produce()
        stored = len(c.proxy.stored)
        kept = {each.partition for each in subject.assignment()}
        await c.poll_until(lambda: len(c.proxy.stored) > stored)
        assert all(offsets.keys() <= kept for offsets in c.proxy.stored[stored:])


def _join_and_be_silent(c: Case, peer: Peer) -> None:
    """Add a member to the group that does nothing until its session expires."""
    wanted = encode_subscription(Subscription(topics=frozenset({c.topic})))
    protocol = JoinGroupRequestProtocol(name="cooperative-sticky", metadata=wanted)
    request = JoinGroupRequest(
        group_id=c.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )
    peer.send(request, 3)


@on_a_loop
async def test_l32_who_closes_in_a_cooperative_rebalance_commits_what_it_still_has() -> None:
    """Its partitions cannot be assigned elsewhere before it has rejoined without them."""
    async with case("cooperative") as c:
        subject = await c.start()
        peer = Peer(c.broker)
        _join_and_be_silent(c, peer)
        # Its partitions are given up, so there is another rebalance, which it does not join.
        await c.poll_until(lambda: len(subject.assignment()) < PARTITIONS)
        await c.poll_until(lambda: state_of(subject) is ClassicMemberState.PREPARING_REBALANCE)
        kept = {each.partition for each in subject.assignment()}
        c.seen.clear()
        c.produce()
        await c.poll_until(lambda: len(c.seen) == len(kept) * RECORDS)
        assert state_of(subject) is ClassicMemberState.PREPARING_REBALANCE
        c.members.remove(subject)
        await subject.close()
        peer.socket.close()
        stored = c.committed()
        assert kept
        assert {each: stored[each] for each in kept} == dict.fromkeys(kept, 2 * RECORDS)
        assert c.notes.told[-1][0] == "lost"  # as in Java


@pytest.mark.parametrize(
    ("api_ms", "request_ms", "waits_ms"), [(60_000, 30_000, 5_000), (700, 30_000, 700)]
)
def test_who_leaves_waits_for_a_commit_no_longer_than_for_a_call(
    api_ms: int, request_ms: int, waits_ms: int
) -> None:
    config = make(
        ConsumerConfig, {"default_api_timeout_ms": api_ms, "request_timeout_ms": request_ms}
    )
    assert leaving_ms(config) == waits_ms
