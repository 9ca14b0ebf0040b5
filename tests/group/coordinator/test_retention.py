"""Unused offsets and groups expire (C60, KIP-211)."""

from __future__ import annotations

from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.group.subscription import Subscription, encode_subscription
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from tests.group.coordinator.dialogue import GROUP, Dialogue

FLIGHTS = encode_subscription(Subscription(topics=frozenset({"flights"})))
NOBODY = CommitIdentity("", -1)
DAY = 24 * 3_600_000


def retaining(retention_ms: int = 1_000, interval_ms: int = 100) -> Dialogue:
    return Dialogue(
        offsets_retention_ms=retention_ms,
        offsets_retention_check_interval_ms=interval_ms,
    )


def commit(talk: Dialogue, identity: CommitIdentity, *topics: str, keep_ms: int = -1) -> None:
    positions = {TopicPartition(topic, 0): OffsetAndMetadata(7) for topic in topics}
    request = commit_request(GROUP, identity, None, positions)
    talk.get(replace(request, retention_time_ms=keep_ms))


def topics(talk: Dialogue) -> set[str]:
    return {partition.topic for partition in talk.shard.log.offsets_of(GROUP)}


def keep_alive(talk: Dialogue, member_id: str, generation: int, milliseconds: int) -> None:
    for _ in range(milliseconds // 5_000):
        talk.advance(5_000)
        assert talk.beat(member_id, generation) == 0


def test_c60_a_group_without_members_loses_each_position_after_its_commit() -> None:
    talk = retaining()
    commit(talk, NOBODY, "t")
    talk.advance(500)
    commit(talk, NOBODY, "u")
    talk.advance(500)
    assert topics(talk) == {"u"}
    talk.advance(500)
    assert talk.state == "Dead"
    talk.reload()
    assert talk.state == "Dead"
    talk.advance(200)
    assert talk.shard.next_deadline() is None


def test_c60_a_former_group_of_consumers_counts_from_when_it_became_empty() -> None:
    talk = retaining(retention_ms=60_000, interval_ms=1_000)
    (a,) = talk.stable("a", protocols=(("range", FLIGHTS),))
    commit(talk, CommitIdentity(a, 1), "flights")
    keep_alive(talk, a, 1, 100_000)
    talk.leave((a, None))
    talk.advance(58_000)
    assert topics(talk) == {"flights"}
    talk.reload()  # the time at which it became empty is in the log
    talk.advance(3_000)
    assert talk.state == "Dead"


def test_c60_while_there_are_consumers_only_what_they_do_not_read_goes() -> None:
    talk = retaining(retention_ms=20_000)
    (a,) = talk.stable("a", protocols=(("range", FLIGHTS),))
    commit(talk, CommitIdentity(a, 1), "flights", "old")
    keep_alive(talk, a, 1, 30_000)
    assert topics(talk) == {"flights"}
    assert talk.state == "Stable"


def test_c60_members_that_are_not_consumers_keep_everything() -> None:
    talk = retaining(retention_ms=20_000)
    (a,) = talk.stable("a", protocol_type="connect")
    commit(talk, CommitIdentity(a, 1), "old")
    keep_alive(talk, a, 1, 30_000)
    assert topics(talk) == {"old"}


def test_c60_in_a_rebalance_nothing_goes() -> None:
    talk = retaining(retention_ms=5_000)
    a, _b = talk.stable("a", "b", protocols=(("range", FLIGHTS),))
    commit(talk, CommitIdentity(a, 1), "old")
    talk.join(a, protocols=(("range", FLIGHTS),))
    talk.advance(9_000)
    assert talk.state == "PreparingRebalance"
    assert topics(talk) == {"old"}


def test_c60_an_old_client_may_ask_for_another_time() -> None:
    talk = retaining(retention_ms=DAY)
    commit(talk, NOBODY, "soon", keep_ms=500)
    commit(talk, NOBODY, "late")
    talk.advance(600)
    assert topics(talk) == {"late"}


def test_c60_an_empty_group_without_positions_goes_at_the_next_check() -> None:
    talk = retaining(retention_ms=DAY)
    (a,) = talk.stable("a")
    talk.leave((a, None))
    assert talk.state == "Empty"
    talk.advance(100)
    assert talk.state == "Dead"
    talk.reload()
    assert talk.state == "Dead"


def test_c60_a_check_survives_a_reload() -> None:
    talk = retaining()
    commit(talk, NOBODY, "t")
    talk.reload()
    assert talk.shard.next_deadline() == talk.now + 100
