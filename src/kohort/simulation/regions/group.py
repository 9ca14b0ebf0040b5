"""The consumer group of the operators: its members, and how partitions move.

A model of the members' view, not of the protocols: the tables of `kohort.group` are simulated
elsewhere. Here only the order of revocations and assignments in each protocol matters.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from kohort.region.machines.events import GroupMember
from kohort.region.machines.records import Partitions, RegionPartition
from kohort.simulation.engine import Engine, Process
from kohort.simulation.regions.parts import Source
from kohort.simulation.regions.scenario import RegionScenario

SESSION_MS = 6_000
REBALANCE_MS = 15_000
_BEAT_MS = 1_000
_NONE: Partitions = frozenset()


class GroupProcess(Process, Protocol):
    """A process with a member.

    Attributes:
        member_id: Id of the member; empty when there is none.
    """

    member_id: str

    @property
    def client_id(self) -> str:
        """Client id of its members."""

    def hear_group(self, what: str, partitions: Partitions, member_id: str) -> None:
        """Handle a message of the group, unless it is for an earlier membership."""

    def lose_everything(self) -> None:
        """Report that the group has removed the member."""


class Member(Struct):
    """A membership.

    Attributes:
        id: Its id.
        node: The process of the member.
        heard_at: Time of its last heartbeat.
        owned: Its partitions according to the group.
        revoking: The partitions that the group asked it to give up.
        told_at: When it was asked.
        has_joined: Whether it has joined the present rebalance (eager and cooperative).
    """

    id: str
    node: GroupProcess
    heard_at: int
    owned: Partitions = _NONE
    revoking: Partitions = _NONE
    told_at: int = 0
    has_joined: bool = True


class Group:
    """The coordinator of the group.

    Args:
        engine: The clock.
        scenario: The scenario.
        source: The topic.

    Attributes:
        members: The members, by id.
    """

    def __init__(self, engine: Engine, scenario: RegionScenario, source: Source) -> None:
        self._engine = engine
        self._scenario = scenario
        self._source = source
        self.members: dict[str, Member] = {}
        self._joined = 0
        engine.after(_BEAT_MS, None, self._look)

    def describe(self) -> tuple[GroupMember, ...]:
        """Return the members as DescribeGroups shows them."""
        return tuple(
            GroupMember(each.id, each.node.client_id, "host") for each in self.members.values()
        )

    def beat(self, node: GroupProcess) -> None:
        """Handle a member's heartbeat: it joins, learns of its removal, or continues."""
        member = self.members.get(node.member_id)
        if member is None:
            if node.member_id:
                node.member_id = ""
                node.lose_everything()
            self._joined += 1
            node.member_id = f"member-{self._joined}"
            member = self.members[node.member_id] = Member(node.member_id, node, self.now)
            self._rebalance()
        member.heard_at = self.now
        self._move()

    @property
    def now(self) -> int:
        """Return the time."""
        return self._engine.now

    def leave(self, node: GroupProcess) -> None:
        """Remove a member that leaves."""
        self.remove(node.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, which may not notice."""
        if self.members.pop(member_id, None) is not None:
            self._rebalance()

    def gave_up(self, node: GroupProcess, partitions: Partitions) -> None:
        """Release a member's partitions after its listener returned; more may be revoked by now."""
        member = self.members.get(node.member_id)
        if member is not None:
            member.owned -= partitions
            member.revoking -= partitions
            member.has_joined = not member.revoking
            self._move()

    def partitions_changed(self) -> None:
        """Rebalance after the topic's partitions changed."""
        self._rebalance()

    def _look(self) -> None:
        self._engine.after(_BEAT_MS, None, self._look)
        for each in list(self.members.values()):
            is_silent = self.now - each.heard_at > SESSION_MS
            is_slow = bool(each.revoking) and self.now - each.told_at > REBALANCE_MS
            if is_silent or is_slow:
                self.remove(each.id)
        self._move()

    # ------------------------------------------------------------------------------ assignments

    def _target(self) -> dict[str, Partitions]:
        """Assign the partitions evenly; owners keep theirs up to their share."""
        members = sorted(self.members)
        partitions = self._source.partitions
        if not members:
            return {}
        most = -(-len(partitions) // len(members))
        shares: dict[str, set[RegionPartition]] = {each: set() for each in members}
        left = []
        for partition in partitions:
            owner = next((m for m in members if partition in self.members[m].owned), None)
            if owner is not None and len(shares[owner]) < most:
                shares[owner].add(partition)
            else:
                left.append(partition)
        for partition in left:
            least = min(members, key=lambda m: (len(shares[m]), m))
            shares[least].add(partition)
        return {each: frozenset(share) for each, share in shares.items()}

    def _rebalance(self) -> None:
        """Begin a rebalance: ask members to give partitions up."""
        target = self._target()
        for each in self.members.values():
            going = each.owned - target[each.id]
            if self._scenario.protocol == "eager":
                going = each.owned
            going -= each.revoking
            each.has_joined = not (going or each.revoking)
            if going:
                if not each.revoking:
                    each.told_at = self.now
                each.revoking |= going
                self._tell(each.node, "revoke", going)
        self._move()

    def _move(self) -> None:
        """Assign free partitions to their new owners."""
        needs_all = self._scenario.protocol != "consumer"
        if needs_all and not all(each.has_joined for each in self.members.values()):
            return
        target = self._target()
        taken = {p for each in self.members.values() for p in each.owned}
        for each in self.members.values():
            new = target[each.id] - taken - each.revoking
            if new and not each.revoking:
                each.owned |= new
                self._tell(each.node, "assign", new)
        # Partitions beyond a member's share move with the next rebalance.
        if any(each.owned - target[each.id] - each.revoking for each in self.members.values()):
            self._rebalance()

    def _tell(self, node: GroupProcess, what: str, partitions: Partitions) -> None:
        engine, member_id = self._engine, node.member_id
        engine.after(self._scenario.delay_ms, node, node.hear_group, what, partitions, member_id)
