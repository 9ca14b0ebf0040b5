"""The simulated world of one run: engine, network, coordinator, clients, topics and ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from kohort.errors import ErrorCode, KohortError
from kohort.group.assignors import Assignor
from kohort.group.coordinator.events import TopicsDeleted
from kohort.group.coordinator.session import Lifecycle
from kohort.group.coordinator.state import ShardSession
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.group.effects import Effects
from kohort.group.events import (
    Assigned,
    AssignmentAsked,
    AssignorFellBack,
    GroupEvent,
    Ownership,
    ProtocolChanged,
)
from kohort.simulation.engine import Engine, Stream
from kohort.simulation.groups.application import Application
from kohort.simulation.groups.base import BaseClient, BaseNode, BaseWorld, Observed
from kohort.simulation.groups.client import Client
from kohort.simulation.groups.coordinator import Coordinator, make_config
from kohort.simulation.groups.facts import Fact, Looked, Recorded
from kohort.simulation.groups.ledger import GROUP, Ledger
from kohort.simulation.groups.log import GroupLog
from kohort.simulation.groups.network import Connection, Network, Pending
from kohort.simulation.groups.protocols import MIGRATION
from kohort.simulation.groups.topics import Topics
from kohort.simulation.groups.views import GroupView, Views
from kohort.simulation.rules import Checkers
from kohort.simulation.runs.scenario import MemberPlan, Scenario, TopicPlan
from kohort.simulation.trace import Trace
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord

NO_CHECKERS = Checkers(())
# Share of the coordinator's slow jobs if it is not one in twenty: otherwise no member would join a
# draft group during a job.
_SLOW_JOBS = {"draft": 0.25}
_LOOKED = Looked()
_LOOK_EVERY_MS = 60_000
_LOOK_EVERY_STEPS = 1_000

# Called with a member, a change and its partitions.
Listener: TypeAlias = Callable[[BaseClient, Ownership, frozenset[TopicPartition]], None]


class ViolationError(KohortError):
    """A checker found a broken rule.

    Attributes:
        checker: Name of the checker.
    """

    def __init__(self, checker: str, complaint: str) -> None:
        super().__init__(f"{checker}: {complaint}")
        self.checker = checker


class MachineFailedError(KohortError):
    """A machine raised an error: a bug that no checker found."""


class World(BaseWorld):
    """The complete state of a run.

    Attributes:
        notes: How often each rare event happened.
        failing_jobs: How many of the coordinator's next jobs fail.
        failing_assignors: Members whose next assignment raises.
        slow_assignors: Members whose next assignment is slow.
    """

    process: type[Client] = Client

    def __init__(
        self,
        scenario: Scenario,
        *,
        checkers: Checkers = NO_CHECKERS,
        trace: Trace | None = None,
        assignors: Mapping[str, Assignor] | None = None,
        survives_failures: bool = False,
    ) -> None:
        """Make a world that has not begun.

        Args:
            scenario: The scenario.
            checkers: The rules to check.
            trace: Records events; None: no trace.
            assignors: The user's assignors, by name.
            survives_failures: Whether an error in a machine ends only its process, not the run.
        """
        self.scenario = scenario
        self.config = make_config(scenario)
        self.engine = Engine()
        self.network = Network(self.engine, scenario.weather, scenario.seed)
        self.log = GroupLog()
        self.topics = Topics()
        self.ledger = Ledger()
        self.assignors = dict(assignors or {})
        self.trace = trace if trace is not None else Trace(keep=False)
        self.tracing = trace is not None
        self.checking = bool(checkers)
        self.survives_failures = survives_failures
        self.notes: Counter[str] = Counter()
        self.tokens = 0
        self.calm = False
        self.repeat_next = 0
        self.failing_jobs = 0
        self.lookup_error: ErrorCode | None = None
        self.failing_assignors, self.slow_assignors = set[str](), set[str]()
        self.garbage: dict[str, str] = {}
        self.members: dict[str, Client] = {}
        self.plans: dict[str, MemberPlan] = {plan.name: plan for plan in scenario.members}
        self.listeners: list[Listener] = []
        self.observers: list[Callable[[GroupEvent], None]] = []
        self.last_change_ms = 0
        self.disturbed_until = 0
        self._checkers = checkers
        self.application: type[Application] = Application
        self._imaged = -1
        self._image = NO_TOPICS
        # Members that died and will be restarted.
        self.restarting: set[str] = set()
        self.unseen: set[str] = set()
        self._produced: set[str] = set()
        self._topic_changed_ms: dict[str, int] = {}
        self._lives: Counter[str] = Counter()
        self._looked_at = 0
        self._views = Views(GROUP)
        self._versions: dict[type[Message], int] = {}
        self._jobs: dict[str, Stream] = {}
        self._lookups: dict[str, Stream] = {}
        self.coordinator: Coordinator = Coordinator(self)

    # ------------------------------------------------------------------------------- beginning

    def begin(self) -> None:
        """Create the topics, start the coordinator, and schedule the start of members."""
        for topic in self.scenario.topics:
            self.topics.create(topic.name, topic.partitions)
            if topic.every_ms:
                stream = Stream(self.scenario.seed, "produce", topic.name)
                self.engine.at(topic.every_ms, None, self._produce, topic, stream)
        self.coordinator.start()
        for plan in self.scenario.members:
            self.engine.at(plan.start_ms, None, self.restart, plan.name)
        if self.checking:
            self.engine.after(_LOOK_EVERY_MS, None, self._look)

    def _look(self) -> None:
        self.check(Looked())
        self._looked_at = self.engine.steps
        self.engine.after(_LOOK_EVERY_MS, None, self._look)

    def _produce(self, plan: TopicPlan, stream: Stream) -> None:
        if self.calm:
            return
        topic = self.topics.present.get(plan.name)
        count = stream.between(0, plan.burst)
        if topic is not None and count:
            topic.ends[:] = [end + count for end in topic.ends]
            for client in self.living():
                client.application.wake()
        self.engine.after(plan.every_ms, None, self._produce, plan, stream)

    # ------------------------------------------------------------------------------- members

    def restart(self, name: str) -> None:
        """Start a member's process, unless it runs."""
        self.restarting.discard(name)
        present = self.members.get(name)
        if present is not None and present.alive:
            return
        self._lives[name] += 1
        client = self.process(self, self.plans[name], self._lives[name])
        if self.calm:
            client.looks_at_old_leader = False
        self.members[name] = client
        if self.tracing:
            self.trace.line(self.engine.now, name, "started", f"life {self._lives[name]}")
        client.application.start()

    def assignors_for(self, _client: BaseClient) -> Mapping[str, Assignor]:
        """Return the user's assignors for a new process, by name."""
        return self.assignors

    def add(self, plan: MemberPlan) -> None:
        """Start a member added during the run."""
        self.plans[plan.name] = plan
        self.restart(plan.name)

    def change_plan(self, name: str, **changes: object) -> None:
        """Change the plan of a member's next life."""
        self.plans[name] = replace(self.plans[name], **changes)  # type: ignore[arg-type]  # keys and values come from `Fault`, which names fields of MemberPlan

    def living(self) -> list[Client]:
        """Return the members whose process runs, by name."""
        return [client for _, client in sorted(self.members.items()) if client.alive]

    def client_died(self, client: BaseClient) -> None:
        """Note that a client died without giving up its partitions."""
        application = client.application
        for partition in sorted(application.believes):
            self.ledger.reading(partition).is_clean = False
        if client.owes_a_round:
            self.note("static member died between two rounds")
            self.unseen |= application.topics
        if self.tracing:
            self.trace.line(self.engine.now, client.name, "died", f"life {client.life}")
        for listener in self.listeners:
            listener(client, Ownership.LOST, frozenset(application.believes))
        self.ledger.lost_at.pop((client.name, client.life), None)

    def owned(
        self,
        client: BaseClient,
        change: Ownership,
        partitions: frozenset[TopicPartition],
        _begins: bool,
    ) -> None:
        """Tell observers that an application's partitions have changed."""
        self.last_change_ms = self.engine.now
        for listener in self.listeners:
            listener(client, change, partitions)

    # ------------------------------------------------------------------------------- durations

    def lookup_ms(self, client: BaseClient) -> int:
        """Return how long a look-up takes."""
        stream = self._lookups.get(client.name)
        if stream is None:
            stream = Stream(self.scenario.seed, "lookup", client.name)
            self._lookups[client.name] = stream
        return stream.between(1, 20)

    def job_ms(self, client: BaseClient) -> int:
        """Return how long a leader's assignment takes."""
        stream = self._jobs.get(client.name)
        if stream is None:
            stream = self._jobs[client.name] = Stream(self.scenario.seed, "job", client.name)
        slow = stream.happens(0.02) and not self.calm
        if client.name in self.slow_assignors:
            self.slow_assignors.clear()
            slow = True
        return 15_000 if slow else stream.between(1, 10)

    def coordinator_job_ms(self) -> int:
        """Return how long a job of the coordinator takes."""
        stream = self._jobs.get("")
        if stream is None:
            stream = self._jobs[""] = Stream(self.scenario.seed, "job", "coordinator")
        slow = stream.happens(_SLOW_JOBS.get(self.scenario.protocol, 0.05)) and not self.calm
        return stream.between(100, 5_000) if slow else 1

    def job_fails(self) -> bool:
        """Return whether the coordinator's next job fails."""
        if not self.failing_jobs:
            return False
        self.failing_jobs -= 1
        self.note("job failed")
        return True

    def assignor_fails(self, client: BaseClient) -> bool:
        """Return whether the next assignment of this leader raises."""
        if client.name in self.failing_assignors:
            self.failing_assignors.discard(client.name)
            self.note("assignor raised")
            return True
        return False

    def version_of(self, request: type[Message]) -> int:
        """Return the version of requests of a class."""
        version = self._versions.get(request)
        if version is None:
            version = self._versions[request] = request.max_version
        return version

    def repeat(self, connection: Connection, pending: Pending) -> None:
        """Deliver a request a second time, later, as after a retry of a client or proxy."""
        self.repeat_next -= 1
        self.note("request repeated")
        copy = Pending(pending.due, _nobody, pending.request, pending.version, is_copy=True)
        other = self.network.connect(connection.client, connection.node, f"copy-{self.tokens}")
        other.up.append(copy)
        self.engine.after(400, connection.node, self._deliver_copy, other)

    def _deliver_copy(self, connection: Connection) -> None:
        connection.is_open = False
        connection.node.receive(connection, connection.up.popleft())

    # ------------------------------------------------------------------------------- topics

    def tell_topics_deleted(self, topics: frozenset[str]) -> None:
        """Notify the coordinator of deleted topics."""
        leader = self.coordinator.ready
        if leader is not None:
            leader.run(TopicsDeleted(topics))
        else:
            self.coordinator.untold |= topics

    def delete_topic(self, name: str) -> None:
        """Delete a topic; every client forgets its positions at once."""
        for partition in list(self.topics.partitions((name,))):
            self.ledger.reading(partition).is_tainted = True
        self.topics.delete(name)
        for client in self.living():
            client.application.forget_topic(name)
        self.tell_topics_deleted(frozenset({name}))

    def produce(self, plan: TopicPlan) -> None:
        """Begin to write records to a topic created during the run."""
        if plan.name not in self._produced:
            self._produced.add(plan.name)
            stream = Stream(self.scenario.seed, "produce", plan.name)
            self.engine.after(plan.every_ms, None, self._produce, plan, stream)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, unless it exists."""
        if name not in self.topics.present:
            self.topics.create(name, partitions)
            self.spread_metadata(2_000, name)

    def leads_unseen(self, topics: frozenset[str]) -> None:
        """Note changes of topics that a leader misses because it skips its first assignment.

        Kafka's leader misses them, too: with KIP-814, such topics keep their assignment until the
        next rebalance.
        """
        self._changed_unseen(topics)

    def _changed_unseen(self, topics: frozenset[str]) -> None:
        for name in topics:
            if self._topic_changed_ms.get(name, -1) >= self.ledger.assigned_ms:
                self.note("topic change unseen by a returning leader")
                self.unseen.add(name)

    def spread_metadata(self, within_ms: int, name: str) -> None:
        """Refresh the clients' metadata, one after the other, after a topic has changed."""
        self._topic_changed_ms[name] = self.engine.now
        if self.scenario.protocol == MIGRATION and self._is_led_by_nobody():
            self.note("topic change unseen without a leader")
            self.unseen.add(name)
        for number, client in enumerate(self.living(), start=1):
            delay = within_ms * number // len(self.members)
            self.engine.after(delay, client, self._refresh, client)

    def _is_led_by_nobody(self) -> bool:
        """Return whether no leader watches the topics.

        This happens in a classic group that was downgraded from KIP-848 without a rebalance, and in
        a KIP-848 group with only classic members, because its coordinator checks topics only on
        ConsumerGroupHeartbeat. Kafka does the same in both cases; the next rebalance checks the
        topics.
        """
        consumers = self.ledger.fold.consumer_groups.get(GROUP)
        if consumers is not None and consumers.members:
            return all(member.classic is not None for member in consumers.members.values())
        node = self.coordinator.ready
        group = node.shard.session.groups.get(GROUP) if node is not None else None
        if group is None or not group.members:
            return False
        return not any(client.machine.group_topics for client in self.living())

    def _refresh(self, client: Client) -> None:
        client.learn_topics(self.topics.counts())

    # ------------------------------------------------------------------------------- the ledger

    def recorded(self, node: BaseNode, records: tuple[GroupRecord, ...]) -> None:
        """Check new records in the log against the ledger, then update it."""
        if self.checking:
            self.check(Recorded(node, records))
            self.ledger.append(self.log.batches[-1].records)

    def disturbed(self, lasts_ms: int = 0) -> None:
        """Note a fault that excuses delays until it ends."""
        self.disturbed_until = max(self.disturbed_until, self.engine.now + lasts_ms)

    def is_disturbed(self, within_ms: int) -> bool:
        """Return whether a recent fault excuses delays."""
        return self.is_loading or self.engine.now - self.disturbed_until < within_ms

    def note(self, what: str) -> None:
        """Count a rare event."""
        self.notes[what] += 1

    def observe(self, events: Iterable[GroupEvent]) -> None:
        """Record the events of a machine."""
        for event in events:
            for observer in self.observers:
                observer(event)

    def observe_coordinator(self, node: BaseNode, effects: Effects[ShardSession]) -> None:
        """Record the events of the coordinator's machine."""
        if not effects.observed:
            return
        if node is self.coordinator.leader:
            for event in effects.observed:
                self.ledger.observe(event)
                if isinstance(event, Assigned) and event.group == GROUP:
                    self.unseen.clear()
                elif isinstance(event, (AssignmentAsked, AssignorFellBack)):
                    self.note(event.kind)
                elif isinstance(event, ProtocolChanged) and event.group == GROUP:
                    self.note(f"group became {event.protocol}")
                    self._changed_unseen(frozenset(self.topics.present))
        self.observe(effects.observed)

    def view(self) -> GroupView | None:
        """Return the coordinator's view of the group; None: there is no coordinator."""
        node = self.coordinator.ready
        return self._views.of(node.shard) if node is not None else None

    def is_current(self, client: BaseClient) -> bool:
        """Return whether a client is a member of the present generation at the coordinator."""
        group = self.view()
        machine = client.machine
        return group is not None and group.is_current(machine.member_id, machine.generation_id)

    def check(self, fact: Observed) -> None:
        """Run the checkers of a fact.

        Raises:
            ViolationError: A checker found a broken rule.
        """
        for rule in self._checkers[type(fact), fact.about]:
            complaint = rule.function(self, cast("Fact", fact))
            if complaint is not None:
                self.fail(rule.name, complaint)
        if self.engine.steps - self._looked_at >= _LOOK_EVERY_STEPS:
            self._looked_at = self.engine.steps
            self.engine.after(0, None, self.check, _LOOKED)

    def fail(self, checker: str, complaint: str) -> None:
        """End the run, because a rule is broken.

        Raises:
            ViolationError: Always, when rules are checked.
        """
        if self.checking:
            raise ViolationError(checker, f"at {self.engine.now} ms: {complaint}")

    def machine_failed(self, who: str, error: Exception) -> None:
        """Handle an error of a machine.

        Raises:
            MachineFailedError: Unless the run survives failures.
        """
        self.note("machine failed")
        if not self.survives_failures:
            raise MachineFailedError(
                f"at {self.engine.now} ms {who} raised {type(error).__name__}: {error}"
            ) from error

    @property
    def image(self) -> TopicsImage:
        """Return the topics of the cluster for the coordinator."""
        if self._imaged != self.topics.version:
            self._imaged = self.topics.version
            views = (
                (name, TopicView(topic.topic_id, len(topic.ends)))
                for name, topic in sorted(self.topics.present.items())
            )
            self._image = TopicsImage.of(views, self._image)
        return self._image

    @property
    def is_loading(self) -> bool:
        """Return whether the coordinator is loading its log."""
        leader = self.coordinator.leader
        return leader is None or leader.shard.state is not Lifecycle.READY


def _nobody(_response: Message | None) -> None:
    """Ignore the answer to a repeated request."""
