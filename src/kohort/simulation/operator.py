"""What an operator changes before a process that could not go on is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.simulation.protocols import CLASSIC, MIGRATION

if TYPE_CHECKING:
    from kohort.simulation.client import Client

# The assignors that eager members know altogether.
_EVERY_ASSIGNOR = ("roundrobin", "range")
_KNOWN = frozenset({"range", "roundrobin"})


def remedy(client: Client, error: KohortError) -> None:
    """Let the next life of a member be one that its group does not refuse.

    A group that may not change its protocol takes nobody who speaks the other one. And a
    coordinator that has read the log knows only the assignor that the group uses, so who knows only
    another one is shut out until the group rebalances, though its members may know both.
    """
    if not isinstance(error, KafkaError):
        return
    world, names = client.world, {each.name for each in client.assignors}
    refused = error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND and world.scenario.protocol == MIGRATION:
        world.note("migration refused")
        world.change_plan(client.name, protocol=CLASSIC.name)
    elif refused and names and names <= _KNOWN:
        world.note("assignor added")
        world.change_plan(client.name, assignors=_EVERY_ASSIGNOR)
