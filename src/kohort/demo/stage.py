"""The environment of the demo: a broker, a topic and a group, and observations of the group."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, GroupDescription, NewTopic, Producer
from kohort.demo.outcome import GroupOffset
from kohort.demo.settings import (
    HEARTBEAT_INTERVAL_MS,
    PARTITIONS,
    DemoSettings,
    GroupProtocol,
)
from kohort.errors import KafkaError
from kohort.group.events import GroupEvent, MemberJoined, OffsetsCommitted
from kohort.observe.rebalances import Rebalance
from kohort.observe.timeline import OwnershipTimeline
from kohort.observe.watch import EventWatch, GroupSnapshot, SnapshotWatch
from kohort.region.inspecting import look
from kohort.region.log.control import control_topic
from kohort.types import TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.region.machines.state import RegionState

_DESCRIBE_INTERVAL_S = 0.25


class Stage:
    """The embedded broker, or the user's own Kafka, with a topic and a group for the demo."""

    def __init__(self, settings: DemoSettings) -> None:
        """Prepare; entering the context starts the broker and creates the topic."""
        self._settings = settings
        self._stack = ExitStack()
        own = settings.bootstrap_servers is None
        mark = "" if own else f"-kohort-demo-{uuid.uuid4().hex[:8]}"
        self.topic = f"flights{mark}"
        self.group = f"delays{mark}"
        self.region = self.group
        self.bootstrap_servers = settings.bootstrap_servers or ""
        self.partitions = tuple(TopicPartition(self.topic, n) for n in range(PARTITIONS))
        self._committed: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._watch: EventWatch | SnapshotWatch

    def __enter__(self) -> Self:
        """Start."""
        with ExitStack() as stack:
            if self._settings.bootstrap_servers is None:
                self._start_broker(stack)
            else:
                self._use_cluster(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the broker, or delete what was created on the user's Kafka."""
        self._stopping.set()
        self._stack.close()

    # ------------------------------------------------------------------------------- embedded

    def _start_broker(self, stack: ExitStack) -> None:
        self._watch = EventWatch(self.group, self.partitions, self.now_ms())
        broker = EmbeddedBroker(
            self._settings.out / "broker",
            group_consumer_session_timeout_ms=self._settings.session_timeout_ms,
            group_consumer_heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )
        broker.subscribe(self._on_event)
        stack.enter_context(broker)
        self.bootstrap_servers = broker.bootstrap_servers
        broker.create_topic(self.topic, PARTITIONS)

    def curtain(self) -> None:
        """Start the timeline now, after the applications have warmed up."""
        if isinstance(self._watch, EventWatch):
            self._watch = EventWatch(self.group, self.partitions, self.now_ms())
        else:
            self._watch = SnapshotWatch(self.partitions, self.now_ms())

    def _on_event(self, event: GroupEvent) -> None:
        if isinstance(event, OffsetsCommitted) and event.group == self.group:
            for partition, position in event.offsets:
                self._committed[partition] = position.offset
        if isinstance(self._watch, EventWatch):
            if isinstance(event, MemberJoined):
                event = replace(event, client_id=_application(event.client_id))
            self._watch.on_event(event)

    # ------------------------------------------------------------------------------- the reader's

    def _use_cluster(self, stack: ExitStack) -> None:
        admin = stack.enter_context(AdminClient(bootstrap_servers=self.bootstrap_servers))
        admin.create_topics([NewTopic(self.topic, PARTITIONS)])
        stack.callback(self._clean_up)
        self._watch = SnapshotWatch(self.partitions, self.now_ms())
        follower = threading.Thread(
            target=self._follow, args=(admin,), name="demo-watch", daemon=True
        )
        follower.start()
        stack.callback(follower.join)
        stack.callback(self._stopping.set)

    def _clean_up(self) -> None:
        with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.delete_topics([self.topic, *self._topics_of_region(admin)])
            for group in (self.group, f"{control_topic(self.region)}-controller"):
                try:
                    admin.delete_groups([group])
                except KafkaError as error:
                    if error.name != "GROUP_ID_NOT_FOUND":
                        raise

    def _topics_of_region(self, admin: AdminClient) -> list[str]:
        control = control_topic(self.region)
        return sorted({control, f"{control}-state"} & {*admin.list_topics()})

    def _follow(self, admin: AdminClient) -> None:
        while not self._stopping.wait(_DESCRIBE_INTERVAL_S):
            try:
                described = admin.describe_groups([self.group])[self.group]
                offsets = admin.list_group_offsets(self.group)
            except KafkaError:
                continue  # observed again soon; gaps in observations are not filled
            self._committed.update({tp: offset.offset for tp, offset in offsets.items()})
            if isinstance(self._watch, SnapshotWatch):
                self._watch.on_snapshot(self._snapshot(described), self.now_ms())

    def _snapshot(self, described: GroupDescription) -> GroupSnapshot:
        stable = described.state == "Stable"
        if self._settings.group_protocol is GroupProtocol.COOPERATIVE and not stable:
            # The coordinator does not report owners then, but there may be some.
            return GroupSnapshot(stable, None)
        assignments = {
            _application(one.client_id): tuple(one.assignment) for one in described.members
        }
        return GroupSnapshot(stable, assignments)

    # ------------------------------------------------------------------------------- observations

    def producer(self) -> Producer:
        """Create the producer of the flights."""
        return Producer(
            bootstrap_servers=self.bootstrap_servers,
            client_id="replay",
            compression_type="zstd",
            linger_ms=20,
        )

    def now_ms(self) -> int:
        """Return the time by the timeline's clock."""
        return int(time.monotonic() * 1000)

    @property
    def timeline(self) -> OwnershipTimeline:
        """The owners of partitions over time."""
        return self._watch.timeline

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The rebalances so far."""
        return self._watch.rebalances

    @property
    def seen_by(self) -> str:
        """The source of the observations, for the report."""
        if isinstance(self._watch, EventWatch):
            return "the group coordinator's own events"
        return f"describing the group every {_DESCRIBE_INTERVAL_S * 1000:.0f} ms"

    def owned_by(self, name: str) -> int:
        """Return how many partitions an application currently owns."""
        return self._watch.owned_by(name)

    def gone(self, name: str) -> None:
        """Record that an application was killed: it owns nothing from now on."""
        self._watch.gone(name, self.now_ms())

    def committed(self) -> int:
        """Return the sum of the group's committed offsets."""
        return sum(self._committed.values())

    def region_state(self) -> RegionState:
        """Return the state in the region's log."""
        settings = {"bootstrap_servers": self.bootstrap_servers}
        return asyncio.run(look(self.region, settings))

    def offsets_by_another_client(self) -> tuple[GroupOffset, ...]:
        """Return the group's offsets and the partitions' ends as read by confluent-kafka."""
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as ForeignPartition

        reader = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": self.group, "log_level": 2}
        )
        try:
            wanted = [ForeignPartition(self.topic, n) for n in range(PARTITIONS)]
            found = []
            for one in reader.committed(wanted, timeout=20):
                _, end = reader.get_watermark_offsets(one, timeout=20)
                found.append(GroupOffset(one.partition, max(one.offset, 0), end))
            return tuple(found)
        finally:
            reader.close()


def _application(client_id: str) -> str:
    """Return the name of an application; an operator's client id ends with its incarnation."""
    return client_id.partition(".")[0]
