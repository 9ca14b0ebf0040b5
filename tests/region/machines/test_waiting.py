"""When a machine of a region wants to be woken up, and for how long an operator is missed."""

from __future__ import annotations

from kohort.region.machines.events import Close, GroupDescribed, GroupMember, PublishFailed
from kohort.region.machines.records import Evict
from kohort.values import replace
from tests.region.harness import P, Region, one

GONE_MS = 2_000
JOIN_MS = 60_000


def look(region: Region, *names: str, after_ms: int = 0) -> list[str]:
    """Let the controller see the group, and return which operators it has evicted so far."""
    region.now += after_ms
    members = tuple(GroupMember(f"m-{n}", f"client-{n}", f"host-{n}") for n in names)
    region.control(GroupDescribed(members))
    region.run()
    return [each.operator.name for each in region.log if isinstance(each, Evict)]


def test_an_operator_that_was_seen_again_is_missed_anew() -> None:
    """A group that rebalances may have it in one description, and not in the next."""
    region, _ = one()
    for _ in range(3):
        assert look(region, after_ms=GONE_MS - 1) == []
        assert look(region, "a", after_ms=1) == []
    assert look(region) == look(region, after_ms=GONE_MS - 1) == []
    assert look(region, after_ms=1) == ["a"]


def test_one_that_owned_nothing_and_was_in_the_group_is_missed_soon() -> None:
    """Only one that has not joined yet gets the time that joining takes."""
    region, _ = one()
    region.process("joining")
    region.process("idle")
    look(region, "a", "idle")
    assert look(region, "a") == look(region, "a", after_ms=GONE_MS - 1) == []
    assert look(region, "a", after_ms=1) == ["idle"]
    assert look(region, "a", after_ms=JOIN_MS) == ["idle", "joining"]


def test_a_publication_that_failed_is_due_again_at_its_time() -> None:
    """Nothing else may happen meanwhile: the next checkpoint may be an hour away."""
    region, _ = one()
    region.controller.config = replace(region.controller.config, publish_retry_ms=300)
    region.publishes = False
    region.pass_time(1_000)
    effects = region.control(PublishFailed(1, "disk full"))
    assert effects.deadline == region.now + 300
    assert [each.checkpoint for each in region.published] == [1]
    region.pass_time(300)
    assert [each.checkpoint for each in region.published] == [1, 1]


def test_an_end_in_order_is_due_at_its_deadline() -> None:
    """It is woken up although the log is silent and no listener waits."""
    region = Region()
    a = region.process("a", owns=[P])
    a.deliver(P, 5)
    region.pass_time(1_000)  # until nothing else is due
    effects = a.put(Close(deadline=region.now + 700))
    assert effects.deadline == region.now + 700
    region.pass_time(700)
    assert a.is_closed
