"""Clients that only note what they are asked, for the tasks of an instance without a broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, cast

from kohort.client.consumer.records import ConsumerRecord
from kohort.client.net.metadata import TopicMetadata
from kohort.streams import App
from kohort.streams.app.application import application_of
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import Task
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.events import StreamsEvent
from kohort.streams.log.records import ControlRecord, ControlState
from kohort.streams.runtime.holding import Held, Role
from kohort.streams.runtime.owning import Owning
from kohort.streams.runtime.restoring import Restorer
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition

NOWHERE = {"bootstrap_servers": "127.0.0.1:1"}
WAIT_S = 60.0
ONE_ID = uuid.UUID(int=1)


def record(place: TopicPartition, offset: int, key: bytes = b"k") -> ConsumerRecord:
    """Return a record of a partition."""
    return ConsumerRecord(*place, offset, 0, 0, key, b"v", (), -1)


class Rows:
    """Where rows of a changelog are."""

    def __init__(self, last_offset: int) -> None:
        self.last_offset = last_offset


class Delivery:
    """What a producer says of a table that it has sent."""

    def __init__(self, topic: str, last_offset: int) -> None:
        self.topic = topic
        self.partitions = {0: Rows(last_offset)}


class Producer:
    """Stores at once; the call whose number is `full` waits for room until `has_room`.

    Attributes:
        sent: The topics of what was sent, in order.
        is_waiting: Whether a call waits for room.
    """

    def __init__(self, full: int | None = None) -> None:
        self.sent: list[str] = []
        self.full = full
        self.is_waiting = asyncio.Event()
        self.has_room = asyncio.Event()
        self.is_slow = False
        self.delivering: list[asyncio.Future[Any]] = []

    async def _room(self) -> None:
        if self.full == len(self.sent):
            self.is_waiting.set()
            await self.has_room.wait()
            self.full = None

    def _future(self, result: object) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        if self.is_slow:
            self.delivering.append(future)
        else:
            future.set_result(result)
        return future

    async def send(self, topic: str, *_: object, **__: object) -> asyncio.Future[Any]:
        await self._room()
        self.sent.append(topic)
        return self._future(None)

    async def send_arrow(self, topic: str, table: Any) -> asyncio.Future[Any]:
        await self._room()
        self.sent.append(topic)
        return self._future(Delivery(topic, table.num_rows - 1))

    async def flush(self) -> None:
        """Everything is sent."""


class Consumer:
    """A member of a group that gets nothing to read but what tests add.

    Attributes:
        offsets: What was committed.
        paused: The partitions that are paused.
        trouble: Raised once by the next commit or poll.
        found: Returned by the next poll.
    """

    member_id, generation_id = "me", 1

    @property
    def _internals(self) -> Self:
        return self

    @property
    def core(self) -> Self:
        return self

    @property
    def membership(self) -> None:
        """It is in no group."""

    def __init__(self, assigned: Iterable[TopicPartition] = ()) -> None:
        self.assigned = frozenset(assigned)
        self.offsets: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.trouble: Exception | None = None
        self.found: Mapping[TopicPartition, Sequence[ConsumerRecord]] = {}

    def assignment(self) -> frozenset[TopicPartition]:
        return self.assigned

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused.difference_update(partitions)

    def wakeup(self) -> None:
        """Nobody polls."""

    def current_lag(self, _partition: TopicPartition) -> int:
        return 0

    async def poll(self, _timeout_ms: int) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        self._raise()
        found, self.found = self.found, {}
        return found

    async def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        self._raise()
        self.offsets.update({place: each.offset for place, each in offsets.items()})

    async def committed(self, *_: TopicPartition) -> dict[TopicPartition, Any]:
        return {}

    def _raise(self) -> None:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble


class Control:
    """A control topic that has been read to its end once `is_read` is set.

    Attributes:
        said: What was appended.
    """

    def __init__(self, state: ControlState | None = None) -> None:
        self.state = state or ControlState()
        self.said: list[ControlRecord] = []
        self.origin = ""
        self.is_read = asyncio.Event()
        self.is_read.set()

    async def append(self, *records: ControlRecord) -> None:
        self.said += records

    async def follow(self) -> None:
        """There is nothing more to read."""
        await asyncio.Event().wait()

    async def caught_up(self) -> ControlState:
        await self.is_read.wait()
        return self.state


class Ends:
    """Answers for changelogs and their offsets: from `start` to `end`, once `answers` is set."""

    def __init__(self, restorer: Restorer, start: int = 0, end: int = 0) -> None:
        self.start, self.end = start, end
        self.topic_id = ONE_ID
        self.trouble: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        reader: Any = restorer.consumer  # no broker stands behind it
        reader.beginning_offsets, reader.end_offsets = self._starts, self._ends
        reader.topic_metadata = self._topics

    async def _starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        await self.answers.wait()
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        return dict.fromkeys(places, self.start)

    async def _topics(self, topics: Sequence[str]) -> dict[str, TopicMetadata]:
        return {each: TopicMetadata(each, self.topic_id, {}) for each in topics}

    async def _ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        await self.answers.wait()
        return dict.fromkeys(places, self.end)


class Stand:
    """An instance of a program that runs nothing by itself.

    Args:
        app: The program; its tasks have their state in memory.
        assigned: The partitions that the group has given to the instance.
        producer: Stores what it writes.
        settings: How it works.
        control: Its control topic.

    Attributes:
        events: What happened.
    """

    def __init__(
        self,
        app: App,
        assigned: Iterable[TopicPartition] = (),
        producer: Producer | None = None,
        settings: StreamSettings | None = None,
        control: Control | None = None,
    ) -> None:
        self.application = application_of(app.build(), None)
        self.events: list[StreamsEvent] = []
        self.instance = StreamsInstance(
            self.application, settings, clients=NOWHERE, on_event=self.events.append
        )
        self.consumer = Consumer(assigned)
        self.producer = producer or Producer()
        self.control = control or Control()
        self.restorer = Restorer(self.application.name, settings or StreamSettings(), NOWHERE)
        self.ends = Ends(self.restorer)
        self.assignor = LearnerAssignor(self.application.topology, LearnerSettings())
        self.owning = Owning(
            self.application,
            self.assignor,
            cast("Any", self.consumer),
            cast("Any", self.producer),
            self.restorer,
            cast("Any", self.control),
            self.events.append,
        )

    def run(self, task: Task) -> Held:
        """Have the instance process a task."""
        held = self.owning._make(task)  # a grant would ask brokers
        held.role = Role.RUNNING
        return held

    async def process(self) -> None:
        """Give each task its turn."""
        await self.instance._turns._process_all(self.owning)  # one turn of the main loop

    async def commit(self) -> None:
        """Commit what was processed."""
        await self.instance._commit(self.owning)  # likewise

    async def step(self) -> None:
        """Take one turn of the main loop."""
        await self.instance._step(self.owning)  # likewise

    async def revoke(self) -> None:
        """Do what closing the consumer leads to."""
        told: Any = self.owning.listener.on_partitions_revoked(self.consumer.assigned)
        if told is not None:
            async with asyncio.timeout(WAIT_S):
                await told

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.owning.close()
        await self.restorer.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110  # anything may make it hold, at any turn of the loop
            await asyncio.sleep(0)


async def cancel(job: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    job.cancel()
    await asyncio.wait([job])
    assert job.cancelled()
