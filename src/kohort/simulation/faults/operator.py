"""The operator's fixes before a process that could not go on is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.groups.protocols import CLASSIC, MIGRATION

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseClient, BaseWorld

# The assignors that the operator may add, in order of preference.
_KNOWN = ("cooperative-sticky", "roundrobin", "range")


def remedy(client: BaseClient, error: KohortError) -> None:
    """Reconfigure a member so that its group accepts its next life.

    A group that may not change its protocol refuses members of the other one. And a coordinator
    that has loaded the log only knows the assignor that the group uses, so a member that only has
    another one is refused until the group rebalances, even if its members have both.
    """
    if not isinstance(error, KafkaError):
        return
    world, names = client.world, {each.name for each in client.assignors}
    refused = error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND and world.scenario.protocol == MIGRATION:
        world.note("migration refused")
        world.change_plan(client.name, protocol=CLASSIC.name)
    elif refused and names and names <= set(_KNOWN):
        world.note("assignor added")
        listed = names | _listed(world) | _in_use(world)
        assignors = tuple(name for name in _KNOWN if name in listed)
        world.change_plan(client.name, assignors=assignors)


def _listed(world: BaseWorld) -> set[str]:
    """The assignors in the configuration of some member."""
    return {name for plan in world.plans.values() for name in plan.assignors}


def _in_use(world: BaseWorld) -> set[str]:
    """The assignor that the group uses according to a tool, even if no member lists it now."""
    node = world.coordinator.ready
    stored = node.shard.log.groups.get(GROUP) if node is not None else None
    return {stored.protocol} if stored and stored.protocol else set()
