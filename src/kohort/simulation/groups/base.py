"""The parts of a simulated group and what they know of each other: state, and calls between them.

Their behaviour is in `application`, `client` and `coordinator`, which know each other and the world
by these classes only, as checkers do. `world` makes them all.
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
        """By what checkers may select it."""


class BaseApplication(ABC):
    """The application that uses a member.

    Attributes:
        believes: Partitions that it owns, according to its listener.
        positions: Offset of the next record to read; None while it is looked up.
        consumed: Offset after the last consumed record.
        stored: Offsets that it knows to be committed.
        paused: Partitions that it has paused.
        stalled_until: Until when it does not poll.
        listener: How the listener ends its next calls: "" returns, "raises", "commits", "rejoins";
            "is refused": the group refuses its member meanwhile.
        slow_ms: How much longer than planned its listener takes.
        callbacks: Calls that its member asks for.
        calling: The call that it makes; None: none.
        closing: Whether it has begun to close.
        closing_since: Since when; None: it has not begun.
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
        """Whether it subscribes to anything, existing or not."""

    @property
    @abstractmethod
    def topics(self) -> frozenset[str]:
        """The topics that it subscribes to; for an expression, the present matches."""

    @abstractmethod
    def start(self) -> None:
        """Subscribe, and begin to poll."""

    @abstractmethod
    def news(self, callbacks: tuple[Callback, ...], raised: tuple[KohortError, ...]) -> None:
        """The member has something for the application."""

    @abstractmethod
    def wake(self) -> None:
        """Look for news, if it waits in a poll."""

    @abstractmethod
    def close(self) -> None:
        """Close the consumer: commit, then let the member leave."""

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
        """Unsubscribe for a while."""

    @abstractmethod
    def subscribe(self, topics: tuple[str, ...], pattern: str = "") -> None:
        """Subscribe to other topics, or to an expression where the protocol has them."""

    @abstractmethod
    def subscribe_again(self) -> None:
        """Repeat the last subscription."""


class BaseClient(ABC):
    """One process with one member: from its start to its end.

    Attributes:
        name: Its name, the same for all lives of it.
        plan: Its settings.
        life: Number of this life.
        alive: Whether it runs.
        paused_until: Until when it is suspended.
        up_blocked_until: Until when nothing that it sends arrives.
        down_blocked_until: Until when nothing sent to it arrives.
        crash_at: Where to die at its next work; empty: nowhere.
        breaks_computing: Whether its connections break when it computes its group's assignment.
        on_beat: Called as soon as the next heartbeat is in flight; None: nothing.
        looks_at_old_leader: Whether look-ups find the coordinator that was.
        world: Where it runs.
        protocol: Its group protocol.
        assignors: Its assignors.
        is_eager: Whether it gives everything up before it joins.
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
        """Whether it is a static member in the middle of a cooperative rebalance (KIP-429)."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """How many of its requests have no answer yet."""

    @property
    @abstractmethod
    def held_until(self) -> int:
        """Until when the network blocks it."""

    @abstractmethod
    def now(self) -> int:
        """Return the time on its own clock, which starts anywhere and may be fast or slow."""

    @abstractmethod
    def tell(self, event: MemberEvent) -> None:
        """Pass an event to the machine, and carry out its effects."""

    @abstractmethod
    def ask(self, event: MemberEvent) -> bool:
        """Like `tell`, for a call that the machine may refuse; return whether it accepted it."""

    @abstractmethod
    def tell_assignor(self, callback: Callback) -> None:
        """Pass the assignment to the assignor before the application (L5)."""

    @abstractmethod
    def request(
        self, purpose: str, request: Message, done: Done, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> None:
        """Send a request to the coordinator.

        Args:
            purpose: Which connection: "join" for requests that are parked, or "group".
            request: The request.
            done: Called with the answer, or None when there is none.
            timeout_ms: How long to wait, in milliseconds of true time.
        """

    @abstractmethod
    def connection_lost(self, node: BaseNode) -> None:
        """The node at the other end died."""

    @abstractmethod
    def reset(self, lingers: bool) -> None:
        """All its connections break; `lingers`: requests in flight arrive nevertheless."""

    @abstractmethod
    def fall_silent(self) -> None:
        """Its connections are dead, but no side notices (half-open connections)."""

    @abstractmethod
    def skip(self, by_ms: int) -> None:
        """Set its clock forward."""

    @abstractmethod
    def die(self, restart_ms: int) -> None:
        """The process ends, without a word; it starts again after a time, 0: never."""


class BaseNode(ABC):
    """A broker that coordinates the group, did so, or may do so.

    Attributes:
        name: Its name in traces.
        alive: Whether the process runs.
        paused_until: Until when it is suspended.
        shard: The machine.
        answers: For each type of request, the error to answer the next one with; with the name of a
            member in front, only requests of that member.
    """

    name: str
    alive: bool
    paused_until: int
    shard: Shard
    answers: dict[str, ErrorCode]

    @property
    @abstractmethod
    def waiting_tokens(self) -> frozenset[int]:
        """Tokens of the requests that have no answer yet."""

    @abstractmethod
    def is_copy(self, token: int) -> bool:
        """Whether the request being handled was sent before."""

    @abstractmethod
    def receive(self, connection: Connection, pending: Pending) -> None:
        """Handle a request."""


class BaseCoordinator(ABC):
    """The choice of the coordinating node, by the cluster's controller.

    Attributes:
        nodes: Both nodes.
        leader: The node that leads; None: none does.
    """

    nodes: tuple[BaseNode, BaseNode]
    leader: BaseNode | None

    @property
    @abstractmethod
    def ready(self) -> BaseNode | None:
        """The leader, if it answers."""

    @abstractmethod
    def loaded(self, node: BaseNode) -> None:
        """A leader is ready."""

    @abstractmethod
    def drop_connections(self, node: BaseNode) -> None:
        """Tell every client that its connection to a node is gone."""

    @abstractmethod
    def node_died(self, node: BaseNode) -> None:
        """Let the other node lead soon."""

    @abstractmethod
    def node_is_back(self, node: BaseNode) -> None:
        """Let the node lead if there is no leader."""


class BaseWorld(ABC):
    """The complete state of a run.

    Attributes:
        scenario: The scenario.
        config: The coordinator's settings.
        engine: The clock.
        network: The connections.
        log: The group's log.
        topics: The topics of the cluster.
        ledger: What must be true of positions and ownership.
        coordinator: The nodes that may coordinate.
        application: Makes the application of a client.
        assignors: Assignors that a user brings, by name.
        trace: Records events.
        tracing: Whether a trace is made.
        checking: Whether there are checkers.
        tokens: How many requests the coordinator has seen.
        calm: Whether faults have stopped.
        repeat_next: How many of the next requests arrive twice.
            lookup_error: With what look-ups fail; None: they do not.
                garbage: Members whose next assignment is invalid, and in which way.
        members: The present life of each member, by name.
        plans: The settings of each member's next life.
        restarting: Members that died and are about to be started again.
        unseen: Topics that stay unassigned until the next rebalance: they changed while the group
            had no leader to notice (KIP-814), or moved from a static member that died before it had
            asked for the second round, and returned without a rebalance (KIP-345).
        disturbed_until: When the last fault that excuses delays is over.
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
        """Return the assignors that a user brings for a process that starts, by name."""

    @abstractmethod
    def restart(self, name: str) -> None:
        """Start a member's process, unless it runs."""

    @abstractmethod
    def change_plan(self, name: str, **changes: object) -> None:
        """Change the plan of a member's next life."""

    @abstractmethod
    def client_died(self, client: BaseClient) -> None:
        """Note that a client's partitions have lost their owner without being given up."""

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
        """Whether the coordinator's next job fails."""

    @abstractmethod
    def assignor_fails(self, client: BaseClient) -> bool:
        """Whether the next assignment of this leader raises."""

    @abstractmethod
    def version_of(self, request: type[Message]) -> int:
        """Return the version in which requests of a class are sent."""

    @abstractmethod
    def repeat(self, connection: Connection, pending: Pending) -> None:
        """Let a request arrive a second time, later, as with a retry of a client or proxy."""

    # ------------------------------------------------------------------------------- topics

    @property
    @abstractmethod
    def image(self) -> TopicsImage:
        """The topics of the cluster, for the coordinator."""

    @abstractmethod
    def tell_topics_deleted(self, topics: frozenset[str]) -> None:
        """Tell the coordinator that topics are gone."""

    @abstractmethod
    def leads_unseen(self, topics: frozenset[str]) -> None:
        """Note changes that a leader which skips its first assignment cannot know."""

    # ------------------------------------------------------------------------ checks and notes

    @property
    @abstractmethod
    def is_loading(self) -> bool:
        """Whether the coordinator is loading its log."""

    @abstractmethod
    def view(self) -> GroupView | None:
        """Return the coordinator's view of the group; None: there is no coordinator."""

    @abstractmethod
    def is_current(self, client: BaseClient) -> bool:
        """Whether a client is really a member of the present generation."""

    @abstractmethod
    def disturbed(self, lasts_ms: int = 0) -> None:
        """Note a fault that excuses delays until it is over."""

    @abstractmethod
    def is_disturbed(self, within_ms: int) -> bool:
        """Whether a fault that excuses delays happened a short time ago."""

    @abstractmethod
    def note(self, what: str) -> None:
        """Count a rare event."""

    @abstractmethod
    def recorded(self, node: BaseNode, records: tuple[GroupRecord, ...]) -> None:
        """Records are in the log: check them against the ledger, then update it."""

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
            ViolationError: One of them complains.
        """

    @abstractmethod
    def fail(self, checker: str, complaint: str) -> None:
        """End the run: a rule is broken.

        Raises:
            ViolationError: Always, when rules are checked.
        """

    @abstractmethod
    def machine_failed(self, who: str, error: Exception) -> None:
        """A machine raised an error.

        Raises:
            MachineFailedError: Unless the run is to survive it.
        """
