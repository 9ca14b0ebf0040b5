"""A small group as a value: its members, messages in flight, and its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from msgspec import Struct, field

from kohort.group.coordinator.jobs import Job
from kohort.group.coordinator.state import LogState, ShardSession
from kohort.group.effects import Callback, MemberJob
from kohort.group.member.events import MemberEvent
from kohort.group.member.machine import MemberMachine
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message

GROUP = "small"
TOPIC = "flights"


class Life(Enum):
    """The stage of a member's process."""

    NEW = "not started yet"
    RUNS = "runs"
    OVER = "closed or dead"


class OnItsWay(Struct, frozen=True, eq=False):
    """A message on a connection, compared by identity.

    Attributes:
        token: Token of the request.
        message: The request or its answer.
    """

    token: int
    message: Message


class Node(Struct, frozen=True, eq=False):
    """A member with its connection and its application; a value, compared by identity.

    Attributes:
        life: The stage of its process.
        session: The machine's session, None while there is none.
        believes: Partitions of the application, by its calls.
        up: Requests in flight, oldest first.
        down: Answers in flight.
        callbacks: Calls that wait for the application.
        jobs: Assignments to compute.
        looks_up: Whether it looks for the coordinator.
        first_token: The first token of the present connection.
        wrong: The rule that its application saw broken.
    """

    life: Life = Life.NEW
    session: Any = None
    believes: frozenset[TopicPartition] = frozenset()
    up: tuple[OnItsWay, ...] = ()
    down: tuple[OnItsWay, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    jobs: tuple[MemberJob, ...] = ()
    looks_up: bool = False
    first_token: int = 0
    wrong: str = ""


class Coordinator(Struct, frozen=True, eq=False):
    """The coordinator; a value, compared by identity.

    Attributes:
        fold: Its log state.
        session: Its session.
        jobs: Its slow work.
        ids: How many ids were made so far.
    """

    fold: LogState
    session: ShardSession
    jobs: tuple[Job, ...] = ()
    ids: int = 0


class State(NamedTuple):
    """A small group.

    Attributes:
        coordinator: Its coordinator.
        nodes: Its members.
        perturbations: How many more perturbations may happen.
    """

    coordinator: Coordinator
    nodes: tuple[Node, ...]
    perturbations: int


class MemberKind(Struct, frozen=True, kw_only=True):
    """What the explorer needs for members of one kind.

    Attributes:
        name: Its name in paths.
        machine: Their machine, which serves all of them, one after the other.
        blank: Returns the session of a process that starts, from an id never used before.
        can_close: Whether the application of a member with this session may close it.
        calls: What else an application may ask for.
    """

    name: str
    machine: MemberMachine[Any, Any]
    blank: Callable[[str], Any]
    can_close: Callable[[Any], bool]
    calls: Callable[[Any], tuple[tuple[str, MemberEvent], ...]] = lambda _session: ()


class GroupProtocol(Struct, frozen=True, kw_only=True):
    """What the explorer needs for a group protocol.

    Attributes:
        kinds: The kinds of members; a new process may be of any.
        epoch: Returns an epoch that the coordinator will never go below.
        is_current: Whether a member with this id and this epoch exists now.
        is_at_rest: Whether the coordinator has nothing to do.
        wrong: Returns the broken rule of the coordinator; empty when none.
        fold: The log in which the group begins.
    """

    kinds: tuple[MemberKind, ...]
    epoch: Callable[[Coordinator], int]
    is_current: Callable[[Coordinator, str, int], bool]
    is_at_rest: Callable[[Coordinator], bool]
    wrong: Callable[[Coordinator], str]
    fold: LogState = field(default_factory=LogState)

    def kind_of(self, session: object) -> MemberKind:
        """Return the kind of the member that has a session."""
        return next(each for each in self.kinds if type(each.blank("")) is type(session))
