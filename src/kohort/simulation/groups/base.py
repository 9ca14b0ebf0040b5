"""The interfaces of a simulated group's parts: their state, and the calls between them.

Their behaviour is in `application`, `client` and `coordinator`. Those modules and the checkers
depend only on these classes; `world` creates the objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kohort.errors import ErrorCode, KohortError
from kohort.group.assignors import Assignor
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.shard import Shard, ShardSession
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.effects import Callback, Effects
from kohort.group.events import GroupEvent, Ownership
from kohort.group.member.events import MemberEvent
from kohort.simulation.engine import Engine
from kohort.simulation.groups import protocols
from kohort.simulation.groups.ledger import Ledger
from kohort.simulation.groups.log import GroupLog
from kohort.simulation.groups.network import Connection, Done, Network, Pending
from kohort.simulation.groups.topics import Topics
from kohort.simulation.groups.views import GroupView
from kohort.simulation.runs.scenario import MemberPlan, Scenario
from kohort.simulation.trace import Trace
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord

REQUEST_TIMEOUT_MS = 30_000


class Observed(Protocol):
    """A fact for checkers, see `facts`."""

    @property
    def about(self) -> type:
        """Return the class by which checkers select it."""


class BaseApplication(ABC):
    """The application that uses a member.

    Attributes:
        believes: Partitions that it owns, according to its listener.
        positions: Offset of the next record to read; None while it is looked up.
        consumed: Offset after the last consumed record.
        stored: Offsets whose commits were confirmed.
        paused: Partitions that it has paused.
        stalled_until: Until when it does not poll.
        listener: How the listener's next calls end: "" returns, "raises", "commits", "rejoins";
            "is refused": the group refuses its member meanwhile.
        slow_ms: How much longer than planned its listener takes.
        callbacks: Calls of the listener that its member queued.
        calling: The running call; None: none.
        closing: Whether it has begun to close.
        closing_since: When closing began; None: it has not begun.
    """

    believes: set[TopicPartition]
    positions: dict[TopicPartition, int | None]
    consumed: dict[TopicPartition, int]
    stored: dict[TopicPartition, int]
    paused: frozenset[TopicPartition]
    stalled_until: int
    listener: str
    slow_ms: int
    callbacks: deque[Callback]
    calling: Callback | None
    closing: bool
    closing_since: int | None

    @property
    @abstractmethod
    def wants(self) -> bool:
        """Return whether it has a subscription, even to missing topics."""

    @property
    @abstractmethod
    def topics(self) -> frozenset[str]:
        """Return the topics that it subscribes to; for an expression, the present matches."""

    @abstractmethod
    def start(self) -> None:
        """Subscribe, and begin to poll."""

    @abstractmethod
    def news(self, callbacks: tuple[Callback, ...], raised: tuple[KohortError, ...]) -> None:
        """Note that the member has callbacks or errors for the application."""

    @abstractmethod
    def wake(self) -> None:
        """End a waiting poll if there is something to do."""

    @abstractmethod
    def close(self) -> None:
        """Close the consumer: commit, then have the member leave."""

    @abstractmethod
    def stall(self, until: int) -> None:
        """Do not poll before a time."""

    @abstractmethod
    def rejoin(self) -> None:
        """Ask for a rebalance."""

    @abstractmethod
    def forget_topic(self, name: str) -> None:
        """Forget positions in a deleted topic."""

    @abstractmethod
    def unsubscribe(self) -> None:
        """Unsubscribe temporarily."""

    @abstractmethod
    def subscribe(self, topics: tuple[str, ...], pattern: str = "") -> None:
        """Subscribe to other topics, or to an expression if the protocol supports it."""

    @abstractmethod
    def subscribe_again(self) -> None:
        """Repeat the last subscription."""


class BaseClient(ABC):
    """One process with one member, from its start to its end.

    Attributes:
        name: Its name, the same for all lives of it.
        plan: Its settings.
        life: Number of this life.
        alive: Whether it runs.
        paused_until: Until when it is suspended.
        up_blocked_until: Until when nothing that it sends arrives.
        down_blocked_until: Until when nothing sent to it arrives.
        crash_at: The point of its work at which to die; empty: none.
        breaks_computing: Whether its connections break when it computes its group's assignment.
        on_beat: Called as soon as the next heartbeat is in flight; None: no call.
        looks_at_old_leader: Whether look-ups find the former coordinator.
        world: Where it runs.
        protocol: Its group protocol.
        assignors: Its assignors.
        is_eager: Whether it gives up all partitions before it joins.
        machine: The member.
        application: The application that uses it.
    """

    name: str
    plan: MemberPlan
    life: int
    alive: bool
    paused_until: int
    up_blocked_until: int
    down_blocked_until: int
    crash_at: str
    breaks_computing: bool
    on_beat: Callable[[], None] | None
    looks_at_old_leader: bool
    world: BaseWorld
    protocol: protocols.Protocol
    assignors: tuple[Assignor, ...]
    is_eager: bool
    machine: protocols.Machine
    application: BaseApplication

    @property
    @abstractmethod
    def owes_a_round(self) -> bool:
        """Return whether it is a static member during a cooperative rebalance (KIP-429)."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Return the number of its unanswered requests."""

    @property
    @abstractmethod
    def held_until(self) -> int:
        """Return until when the network blocks it."""

    @abstractmethod
    def now(self) -> int:
        """Return the time on its own clock, which starts anywhere and may run fast or slow."""

    @abstractmethod
    def tell(self, event: MemberEvent) -> None:
        """Pass an event to the machine, and carry out its effects."""

    @abstractmethod
    def ask(self, event: MemberEvent) -> bool:
        """Like `tell`, for a call that the machine may refuse; return whether it was accepted."""

    @abstractmethod
    def tell_assignor(self, callback: Callback) -> None:
        """Pass the assignment to the assignor before it is reported to the application (L5)."""

    @abstractmethod
    def request(
        self, purpose: str, request: Message, done: Done, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> None:
        """Send a request to the coordinator.

        Args:
            purpose: Which connection: "join" for requests that are parked, or "group".
            request: The request.
            done: Called with the answer, or None without one.
            timeout_ms: How long to wait, in milliseconds of true time.
        """

    @abstractmethod
    def connection_lost(self, node: BaseNode) -> None:
        """Handle the death of the node at the other end."""

    @abstractmethod
    def reset(self, lingers: bool) -> None:
        """Break all its connections; `lingers`: requests in flight still arrive."""

    @abstractmethod
    def fall_silent(self) -> None:
        """Break its connections without either side noticing (half-open connections)."""

    @abstractmethod
    def skip(self, by_ms: int) -> None:
        """Set the process's clock forward."""

    @abstractmethod
    def die(self, restart_ms: int) -> None:
        """End the process abruptly; it restarts after a time, 0: never."""


class BaseNode(ABC):
    """A broker that is, was or may become the group's coordinator.

    Attributes:
        name: Its name in traces.
        alive: Whether the process runs.
        paused_until: Until when it is suspended.
        shard: The machine.
        answers: For each request type, the error with which to answer the next one; with a member's
            name as a prefix, only for requests of that member.
    """

    name: str
    alive: bool
    paused_until: int
    shard: Shard
    answers: dict[str, ErrorCode]

    @property
    @abstractmethod
    def waiting_tokens(self) -> frozenset[int]:
        """Return the tokens of the unanswered requests."""

    @abstractmethod
    def is_copy(self, token: int) -> bool:
        """Return whether the request being handled was sent before."""

    @abstractmethod
    def receive(self, connection: Connection, pending: Pending) -> None:
        """Handle a request."""


class BaseCoordinator(ABC):
    """The cluster's controller, which chooses the coordinating node.

    Attributes:
        nodes: Both nodes.
        leader: The leading node, None if there is none.
    """

    nodes: tuple[BaseNode, BaseNode]
    leader: BaseNode | None

    @property
    @abstractmethod
    def ready(self) -> BaseNode | None:
        """Return the leader, if it answers."""

    @abstractmethod
    def loaded(self, node: BaseNode) -> None:
        """Note that a leader is ready."""

    @abstractmethod
    def drop_connections(self, node: BaseNode) -> None:
        """Break every client's connection to a node."""

    @abstractmethod
    def node_died(self, node: BaseNode) -> None:
        """Schedule the other node's leadership."""

    @abstractmethod
    def node_is_back(self, node: BaseNode) -> None:
        """Have the node lead if there is no leader."""


class BaseWorld(ABC):
    """The complete state of a run.

    Attributes:
        scenario: The scenario.
        config: The coordinator's settings.
        engine: The clock.
        network: The connections.
        log: The group's log.
        topics: The topics of the cluster.
        ledger: The independent record of positions and ownership.
        coordinator: The nodes that may coordinate.
        application: Makes the application of a client.
        assignors: The user's assignors, by name.
        trace: Records events.
        tracing: Whether a trace is recorded.
        checking: Whether there are checkers.
        tokens: Number of requests that the coordinator has received.
        calm: Whether faults have stopped.
        repeat_next: Number of the next requests that arrive twice.
        lookup_error: The error of look-ups; None: they succeed.
        garbage: Members whose next assignment is invalid, with the kind of error.
        members: The present life of each member, by name.
        plans: The settings of each member's next life.
        restarting: Members that died and will be restarted.
        unseen: Topics that stay unassigned until the next rebalance: they changed while the group
            had no leader to notice (KIP-814), or moved from a static member that died before it had
            asked for the second round, and returned without a rebalance (KIP-345).
        disturbed_until: When the last fault that excuses delays ends.
    """

    CRASH_RESTART_MS = 5_000

    scenario: Scenario
    config: CoordinatorConfig
    engine: Engine
    network: Network
    log: GroupLog
    topics: Topics
    ledger: Ledger
    coordinator: BaseCoordinator
    application: Callable[[BaseClient], BaseApplication]
    trace: Trace
    tracing: bool
    checking: bool
    tokens: int
    calm: bool
    repeat_next: int
    lookup_error: ErrorCode | None
    garbage: dict[str, str]
    members: Mapping[str, BaseClient]
    plans: dict[str, MemberPlan]
    restarting: set[str]
    unseen: set[str]
    disturbed_until: int

    # ------------------------------------------------------------------------------- members

    @abstractmethod
    def living(self) -> Sequence[BaseClient]:
        """Return the members whose process runs, by name."""

    @abstractmethod
    def assignors_for(self, client: BaseClient) -> Mapping[str, Assignor]:
        """Return the user's assignors for a new process, by name."""

    @abstractmethod
    def restart(self, name: str) -> None:
        """Start a member's process, unless it runs."""

    @abstractmethod
    def change_plan(self, name: str, **changes: object) -> None:
        """Change the plan of a member's next life."""

    @abstractmethod
    def client_died(self, client: BaseClient) -> None:
        """Note that a client died without giving up its partitions."""

    @abstractmethod
    def owned(
        self,
        client: BaseClient,
        change: Ownership,
        partitions: frozenset[TopicPartition],
        begins: bool,
    ) -> None:
        """Tell observers that an application's partitions have changed."""

    # ------------------------------------------------------------------------------- durations

    @abstractmethod
    def lookup_ms(self, client: BaseClient) -> int:
        """Return how long a look-up takes."""

    @abstractmethod
    def job_ms(self, client: BaseClient) -> int:
        """Return how long a leader's assignment takes."""

    @abstractmethod
    def coordinator_job_ms(self) -> int:
        """Return how long a job of the coordinator takes."""

    @abstractmethod
    def job_fails(self) -> bool:
        """Return whether the coordinator's next job fails."""

    @abstractmethod
    def assignor_fails(self, client: BaseClient) -> bool:
        """Return whether the next assignment of this leader raises."""

    @abstractmethod
    def version_of(self, request: type[Message]) -> int:
        """Return the version of requests of a class."""

    @abstractmethod
    def repeat(self, connection: Connection, pending: Pending) -> None:
        """Deliver a request a second time, later, as after a retry of a client or proxy."""

    # ------------------------------------------------------------------------------- topics

    @property
    @abstractmethod
    def image(self) -> TopicsImage:
        """Return the topics of the cluster for the coordinator."""

    @abstractmethod
    def tell_topics_deleted(self, topics: frozenset[str]) -> None:
        """Notify the coordinator of deleted topics."""

    @abstractmethod
    def leads_unseen(self, topics: frozenset[str]) -> None:
        """Note changes of topics that a leader misses because it skips its first assignment."""

    # ------------------------------------------------------------------------ checks and notes

    @property
    @abstractmethod
    def is_loading(self) -> bool:
        """Return whether the coordinator is loading its log."""

    @abstractmethod
    def view(self) -> GroupView | None:
        """Return the coordinator's view of the group; None: there is no coordinator."""

    @abstractmethod
    def is_current(self, client: BaseClient) -> bool:
        """Return whether a client is a member of the present generation at the coordinator."""

    @abstractmethod
    def disturbed(self, lasts_ms: int = 0) -> None:
        """Note a fault that excuses delays until it ends."""

    @abstractmethod
    def is_disturbed(self, within_ms: int) -> bool:
        """Return whether a recent fault excuses delays."""

    @abstractmethod
    def note(self, what: str) -> None:
        """Count a rare event."""

    @abstractmethod
    def recorded(self, node: BaseNode, records: tuple[GroupRecord, ...]) -> None:
        """Check new records in the log against the ledger, then update it."""

    @abstractmethod
    def observe(self, events: Iterable[GroupEvent]) -> None:
        """Record the events of a machine."""

    @abstractmethod
    def observe_coordinator(self, node: BaseNode, effects: Effects[ShardSession]) -> None:
        """Record the events of the coordinator's machine."""

    @abstractmethod
    def check(self, fact: Observed) -> None:
        """Run the checkers of a fact.

        Raises:
            ViolationError: A checker found a broken rule.
        """

    @abstractmethod
    def fail(self, checker: str, complaint: str) -> None:
        """End the run, because a rule is broken.

        Raises:
            ViolationError: Always, when rules are checked.
        """

    @abstractmethod
    def machine_failed(self, who: str, error: Exception) -> None:
        """Handle an error of a machine.

        Raises:
            MachineFailedError: Unless the run survives failures.
        """
