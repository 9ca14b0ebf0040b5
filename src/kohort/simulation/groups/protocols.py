"""The members' group protocols: constructors of their machines, and properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeAlias

from msgspec import Struct

from kohort.errors import ConfigError
from kohort.group.assignors import BUILTIN_ASSIGNORS, Assignor, RebalanceProtocol
from kohort.group.member.classic.machine import ClassicMember
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMember
from kohort.group.member.draft.machine import DraftMember
from kohort.group.member.machine import MemberMachine
from kohort.simulation.runs.scenario import MemberPlan

# A member of any protocol.
Machine: TypeAlias = MemberMachine[Any, Any]


class Protocol(Struct, frozen=True, kw_only=True):
    """A member's side of one group protocol.

    Attributes:
        name: Its name in scenarios.
        make: Makes a member's machine from its settings, its assignors and a string that was never
            used before.
        assignors: The default assignors of its members.
        is_classic: Whether members assign the partitions, with assignors that they agree on.
        has_epochs: Whether each member has its own epoch (KIP-848) instead of a generation.
        stable: Names of the states of a stable member.
        fatal: Names of the states of a member that cannot continue.
    """

    name: str
    make: Callable[[MemberConfig, tuple[Assignor, ...], str], Machine]
    assignors: tuple[str, ...] = ()
    is_classic: bool = True
    has_epochs: bool = False
    stable: frozenset[str] = frozenset({"STABLE"})
    fatal: frozenset[str] = frozenset({"FATAL"})


def _classic(config: MemberConfig, assignors: tuple[Assignor, ...], _unique: str) -> Machine:
    return ClassicMember(config, assignors)


CLASSIC = Protocol(name="classic", make=_classic, assignors=("range",))
COOPERATIVE = Protocol(name="cooperative", make=_classic, assignors=("cooperative-sticky",))


def _consumer(config: MemberConfig, _assignors: tuple[Assignor, ...], unique: str) -> Machine:
    return ConsumerMember(config, unique)


CONSUMER = Protocol(name="consumer", make=_consumer, is_classic=False, has_epochs=True)


def _client_side(config: MemberConfig, assignors: tuple[Assignor, ...], unique: str) -> Machine:
    return ConsumerMember(config, unique, assignors=assignors)


CLIENT_SIDE = Protocol(
    name="client-side",
    make=_client_side,
    assignors=("cooperative-sticky",),
    is_classic=False,
    has_epochs=True,
)


def _draft(config: MemberConfig, _assignors: tuple[Assignor, ...], unique: str) -> Machine:
    return DraftMember(config, unique)


DRAFT = Protocol(name="draft", make=_draft, is_classic=False, stable=frozenset({"PART_OF_GROUP"}))

PROTOCOLS: dict[str, Protocol] = {
    each.name: each for each in (CLASSIC, COOPERATIVE, CONSUMER, CLIENT_SIDE, DRAFT)
}

# A group whose members migrate from the classic protocol to KIP-848 and back.
MIGRATION = "migration"
# The protocols in which a seed can be run.
CAMPAIGNS: tuple[str, ...] = (*PROTOCOLS, MIGRATION)


def protocol_of(plan: MemberPlan, default: str) -> Protocol:
    """Return the protocol of a member.

    Args:
        plan: The member.
        default: The protocol of its scenario; in a migration each member has its own, by default
            the newer protocol.

    Raises:
        ConfigError: No protocol has that name.
    """
    name = plan.protocol or (CONSUMER.name if default == MIGRATION else default)
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol {name!r}; there are: {', '.join(CAMPAIGNS)}")
    return PROTOCOLS[name]


def assignors_of(
    plan: MemberPlan, protocol: Protocol, own: Mapping[str, Assignor]
) -> tuple[Assignor, ...]:
    """Return the assignors of a member; `own` are the user's.

    Raises:
        ConfigError: A name is unknown.
    """
    known = {**BUILTIN_ASSIGNORS, **own}
    names = plan.assignors or protocol.assignors
    missing = [name for name in names if name not in known]
    if missing:
        raise ConfigError(f"no assignor {missing[0]!r}; there are: {', '.join(known)}")
    return tuple(copy(known[name]) for name in names)  # they remember their member's assignment


def is_eager(protocol: Protocol, assignors: tuple[Assignor, ...]) -> bool:
    """Return whether a member gives up all partitions before it joins (KIP-429, D24)."""
    if not protocol.is_classic:
        return not protocol.has_epochs
    return not all(RebalanceProtocol.COOPERATIVE in a.supported_protocols for a in assignors)
