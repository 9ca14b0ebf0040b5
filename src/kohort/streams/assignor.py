"""Connects the state machines of learner tasks to the client, as an assignor.

The client asks for user data in its own thread and delivers the result during poll; the event loop
delivers lags and time. So each input is decided under a lock, and its effects are passed to one
function, in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import ClassVar, Self

from immutables import Map

from kohort.group.assignors.interface import (
    Assignment,
    Assignor,
    ClusterView,
    GroupMetadata,
    RebalanceProtocol,
)
from kohort.group.subscription import Subscription
from kohort.streams.assignment.leader import (
    Elected,
    Followed,
    LeaderConfig,
    LeaderEffects,
    LeaderMachine,
    Tick,
)
from kohort.streams.assignment.member import (
    JoinStarted,
    MemberInput,
    MembershipLost,
    TaskEffects,
    TaskMachine,
    TasksAssigned,
    TaskSession,
)
from kohort.streams.assignment.metadata import VERSION, Lags
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import Task, Topology
from kohort.types import TopicPartition
from kohort.values import replace

Heard = Callable[[TaskEffects], None]
Clock = Callable[[], int]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class LearnerAssignor(Assignor):
    """The member and the leader of learner tasks, as one assignor of a consumer.

    Args:
        topology: The topology of the application.
        settings: The group's settings; the leader's settings apply.
        client_tags: Where the instance runs (KIP-708).
        dormant: Tasks with state on disk, with their lags if known.
        workers: Number of workers of the instance.
        clock: Returns the time in milliseconds from a monotonic clock, for both machines.

    Attributes:
        heard: Called with the effects of each input, in the input's thread.
        counts: The number of partitions of each topic when the instance started.
        is_member: Returns whether the consumer is in a generation; if not, the member starts over.
    """

    name: ClassVar[str] = ASSIGNOR
    version: ClassVar[int] = VERSION
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.COOPERATIVE,)

    def __init__(
        self,
        topology: Topology,
        settings: LearnerSettings,
        client_tags: Mapping[str, str] = Map(),
        dormant: Lags = Map(),
        workers: int = 1,
        clock: Clock = _now_ms,
    ) -> None:
        self.heard: Heard = _nobody
        self.is_member: Callable[[], bool] = lambda: True
        self.counts: Mapping[str, int] = Map()
        self._topology = topology
        self._settings = settings
        self._dormant = dormant
        self._clock = clock
        self._lock = Lock()
        self._member = TaskMachine(topology, Map(client_tags), workers)
        self._member.session = TaskSession(dormant=dormant)
        self._leader = LeaderMachine(LeaderConfig(topology=topology, settings=settings))
        self._attempts = 0
        self._has_planned = False
        self._rejoin = ""
        self._deadline: int | None = None

    def __copy__(self) -> Self:
        """Return an assignor for another member with the same settings and initial disk state."""
        member = self._member
        copied = type(self)(
            self._topology,
            self._settings,
            member.client_tags,
            self._dormant,
            member.workers,
            self._clock,
        )
        copied.counts, copied.protocol_type = self.counts, self.protocol_type
        return copied

    @property
    def session(self) -> TaskSession:
        """The member's memory; immutable."""
        return self._member.session

    @property
    def deadline(self) -> int | None:
        """When `tick` is due by the given clock; None: never."""
        return self._deadline

    # ------------------------------------------------------------------------- the client's calls

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002  # the topology has them
        """Fix and return this member's user data for the next rebalance."""
        with self._lock:
            if self.session.generation >= 0 and not self.is_member():
                self._decide(MembershipLost())
            self._attempts += 1
            self._has_planned = False
            self._decide(JoinStarted(self._attempts))
            return self.session.user_data

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return only the partitions of each member."""
        found = self.assign_with_user_data(cluster, subscriptions)
        return {member: sorted(each.partitions) for member, each in found.items()}

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Make the plan of a generation, as its leader.

        Raises:
            OtherTopicsError: A member reads other topics; the consumer's poll raises an error
                caused by it.
            LocalProtocolError: The topics are not co-partitioned.
        """
        with self._lock:
            counts = self._topology.steady(self.counts, cluster.partitions)
            effects = self._lead(Elected(Map(subscriptions), Map(counts)))
            self._has_planned = True
            self._rejoin = effects.rejoin
            return effects.assignments or {}

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Accept the leader's assignment for this member."""
        with self._lock:
            if not self._has_planned:
                self._lead(Followed())
            effects = self._decide(
                TasksAssigned(
                    metadata.generation_id, assignment.partitions, assignment.user_data or b""
                )
            )
            rejoin, self._rejoin = effects.rejoin or self._rejoin, ""
        self.heard(replace(effects, rejoin=rejoin))

    def lent(self) -> frozenset[TopicPartition]:
        """Return the partitions that others learn; in draft mode, joining gives them up."""
        instructions = self.session.instructions
        lent = (
            self.session.active & instructions.being_learned
            if instructions.is_draft
            else frozenset[Task]()
        )
        return self._topology.inputs(lent)

    # --------------------------------------------------------------------------- the loop's calls

    def tell(self, event: MemberInput) -> None:
        """Pass an event from outside a rebalance to the member."""
        with self._lock:
            effects = self._decide(event)
        self.heard(effects)

    def tick(self) -> str:
        """Let the leader check the time; return a reason to ask for a rebalance, or ""."""
        with self._lock:
            return self._lead(Tick()).rejoin

    # ------------------------------------------------------------------------------- the machines

    def _decide(self, event: MemberInput) -> TaskEffects:
        effects = self._member.decide(event, self._clock())
        self._member.install(effects)
        return effects

    def _lead(self, event: Elected | Followed | Tick) -> LeaderEffects:
        effects = self._leader.decide(event, self._clock())
        self._leader.install(effects)
        self._deadline = effects.deadline
        return effects


def _nobody(_effects: TaskEffects) -> None:
    """Ignore effects until a listener is set."""
