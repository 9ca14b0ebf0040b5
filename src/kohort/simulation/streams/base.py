"""The interfaces of a simulated stream application's parts.

They extend the interfaces of groups in `groups.base`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kohort.client.consumer.listener import Listens
from kohort.client.consumer.records import ConsumerRecord
from kohort.errors import KohortError
from kohort.group.assignors.interface import Assignment
from kohort.group.subscription import Subscription
from kohort.simulation.groups.base import BaseApplication, BaseClient, BaseWorld
from kohort.simulation.streams.brokers import Brokers
from kohort.simulation.streams.loop import VirtualLoop
from kohort.simulation.streams.scenario import StreamsScenario
from kohort.streams.assignment.tasks import Task, Topology
from kohort.streams.events import StreamsEvent
from kohort.streams.runtime.interface import Pair, StateDirectory
from kohort.streams.runtime.owning import Owning
from kohort.streams.runtime.running import StreamsInstance
from kohort.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Records = dict[TopicPartition, Sequence[ConsumerRecord]]


class Disk(Struct):
    """The state of one task on the disk of one instance.

    Attributes:
        flushed: The state.
        checkpoint: The offset up to which it has the changelog; None: not known.
        user: The process that has it open; None: none.
    """

    flushed: dict[bytes, bytes] = field(default_factory=dict)
    checkpoint: int | None = None
    user: BaseProcess | None = None


class BaseProcess(BaseClient):
    """A process that can die at any step of its loop.

    Attributes:
        streams: Its application.
        dies_at: The step at which it dies; empty: none.
        slow_until: Until when it replays slowly.
        replays_per_s: How many records it replays per second while it is slow; 0: none.
        heard_at: Sending time of the last request that the coordinator answered as a member's.
        leaves_since: Since when it is leaving; None: it stays.
        joined_at: When it last sent its user data.
        lags: Its true lags then, by task.
    """

    streams_world: BaseStreamsWorld
    dies_at: str
    slow_until: int
    replays_per_s: int
    heard_at: int
    leaves_since: int | None
    joined_at: int
    lags: dict[Task, int]

    @property
    @abstractmethod
    def streams(self) -> BaseStreamsApplication:
        """Its application."""

    @property
    @abstractmethod
    def is_session_over(self) -> bool:
        """Whether the coordinator may have removed the member, as far as it can know."""

    @abstractmethod
    def step(self, name: str) -> None:
        """Reach a step of its loop.

        Raises:
            ProcessDiedError: It dies there.
        """

    @abstractmethod
    def dies(self, name: str) -> bool:
        """Kill it if it is to die at a step, and return whether it was."""


class BaseStreamsApplication(BaseApplication):
    """The driver of the member: the instance, on a loop of its own.

    Attributes:
        process: Its process.
        loop: The loop.
        consumer: The instance's consumer.
        control_reader: Reads the control topic.
        changelog_reader: Reads changelogs.
        is_woken: Whether the next poll ends at once.
        listener_object: Called when partitions come and go.
        last_error: The last error of a poll.
    """

    process: BaseProcess
    loop: VirtualLoop
    consumer: object
    control_reader: object
    changelog_reader: object
    is_woken: bool
    listener_object: Listens
    last_error: KohortError | None

    @property
    @abstractmethod
    def owning(self) -> Owning | None:
        """The tasks of the instance; None: it does not run."""

    @property
    @abstractmethod
    def lags_heard_at(self) -> int:
        """Return when the changelogs' ends were last fetched."""

    @property
    @abstractmethod
    def is_fatal(self) -> bool:
        """Return whether the member has failed."""

    @abstractmethod
    def processing_ms(self) -> int:
        """Return how long the next records take."""

    @abstractmethod
    def grown(self, place: TopicPartition) -> None:
        """Check a log for new records."""

    @abstractmethod
    def join(self) -> None:
        """Let the member join its group."""

    @abstractmethod
    async def poll(self, timeout_ms: int) -> Records:
        """Make due calls, and return records once there are any."""

    @abstractmethod
    async def news_within(self, seconds: float) -> None:
        """Wait for news of the member, for some time."""

    @abstractmethod
    def serve(self) -> None:
        """Make due calls; slow ones do not delay the others."""


class BaseStreamsWorld(BaseWorld):
    """The complete state of a run.

    Attributes:
        plan: The scenario.
        topology: The topology of the application.
        brokers: Changelogs, outputs and the control topic.
    """

    plan: StreamsScenario
    topology: Topology
    brokers: Brokers

    @abstractmethod
    def instance(self, process: BaseProcess) -> StreamsInstance:
        """Return the instance that a process runs."""

    @abstractmethod
    def processes(self) -> Sequence[BaseProcess]:
        """Return the processes that run."""

    @abstractmethod
    def replay_rate(self, process: BaseProcess) -> int | None:
        """Return how many records a process replays per second; None: any number."""

    @abstractmethod
    def stored(self, name: str) -> list[Task]:
        """Return the tasks that have state on the disk of an instance."""

    @abstractmethod
    def open_directory(self, process: BaseProcess, task: Task) -> StateDirectory | None:
        """Open the directory of a task.

        Raises:
            StateInUseError: The process has it open.
        """

    @abstractmethod
    def lags_of(self, process: BaseProcess) -> dict[Task, int]:
        """Return the true lags of a process with the tasks of which it has state."""

    @abstractmethod
    def planned(
        self, subscriptions: Mapping[str, Subscription], given: Mapping[str, Assignment]
    ) -> None:
        """Check a leader's plan."""

    @abstractmethod
    def processed(self, process: BaseProcess, task: Task, offset: int) -> None:
        """Check a processed record."""

    @abstractmethod
    def checkpointed(self, process: BaseProcess, task: Task, disk: Disk, at: int) -> None:
        """Check a written checkpoint."""

    @abstractmethod
    def leaves(self, process: BaseProcess) -> None:
        """An instance ends because it was to leave."""

    @abstractmethod
    def sends(self, process: BaseProcess, place: TopicPartition) -> None:
        """A process sends changes of state."""

    @abstractmethod
    def arrived(self, process: BaseProcess, place: TopicPartition, pairs: list[Pair]) -> None:
        """Records of a process have arrived."""

    @abstractmethod
    def happened(self, process: BaseProcess, event: StreamsEvent) -> None:
        """An instance reports an event."""

    @abstractmethod
    def ended(self, process: BaseProcess, error: Exception) -> None:
        """An instance has ended with an error."""

    @abstractmethod
    def raise_broken(self) -> None:
        """Raise the error that ends the run, if there is one."""
