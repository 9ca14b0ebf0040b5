"""Applications with our consumer: the same commands and events as Members.java has."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from traceback import format_exception
from typing import ClassVar, Self, cast

from kohort.client import Consumer, RebalanceListener
from kohort.errors import (
    CommitFailedError,
    ConfigError,
    KafkaError,
    KohortError,
    LocalProtocolError,
)
from kohort.group.assignors import ClusterView, Subscription
from kohort.group.assignors.interface import Assignor, RebalanceProtocol
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.member_dialogues.applications import Command, Hear

POLL_MS = 50
METRICS = "consumer-coordinator-metrics"


class Raised(Exception):
    """What a listener raises that was told to."""


# What an application may be told by its consumer: the errors that dialogues are about.
TOLD = (KohortError, Raised)


class Hasty(Assignor):
    """Gives everything to the last member at once, whoever has it."""

    name = "hasty"
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.COOPERATIVE,)

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor`."""
        last = max(subscriptions)
        every = [
            TopicPartition(topic, number)
            for topic in sorted({each for s in subscriptions.values() for each in s.topics})
            for number in range(cluster.partitions[topic])
        ]
        return {member: every if member == last else [] for member in subscriptions}


class OurHost:
    """Applications with our consumer, each with a thread of its own; see `Host`."""

    def __init__(self, servers: str) -> None:
        """Take the address of the broker."""
        self._servers = servers
        self._applications: dict[str, Application] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for application in self._applications.values():
            application.end()

    def listen(self, name: str, hear: Hear) -> None:
        """See `Host`."""
        self._applications[name] = Application(self._servers, hear)

    def tell(self, name: str, command: Command) -> None:
        """See `Host`."""
        self._applications[name].tell(command)


class Application(RebalanceListener):
    """One application; it is its consumer's listener, too."""

    def __init__(self, servers: str, hear: Hear) -> None:
        self._servers = servers
        self._hear = hear
        self._thread = ThreadPoolExecutor(1)
        self._actions: Mapping[str, str] = {}
        self._gate = threading.Semaphore(0)
        self._consumer: Consumer | None = None
        self._stopping = False
        self._holding = False
        self._happened: list[str] = []
        self._read = 0
        self._told: Mapping[str, object] = {}

    @property
    def consumer(self) -> Consumer:
        """Its consumer, once it has started."""
        assert self._consumer is not None
        return self._consumer

    def tell(self, command: Command) -> None:
        """Have it do something, in its thread if it takes time."""
        if command["do"] == "stop":
            self._stopping = True
        elif command["do"] == "release":
            self._gate.release()
        elif command["do"] == "listen":
            self._actions = cast("dict[str, str]", command["actions"])
        else:
            self._stopping = False
            self._thread.submit(self._obey, command).add_done_callback(self._ended)

    def end(self) -> None:
        """End it, whatever it does."""
        self._stopping = True
        self._actions = {}
        self._gate.release(2)
        if self._consumer is not None:
            self._thread.submit(self._consumer.close, 0.0).result()
        self._thread.shutdown()

    def _obey(self, command: Command) -> None:
        try:
            self._act(command)
        except TOLD as error:
            self._say(f"error {kind(error)}")
        self._tell_how()
        self._hear({"done": True})

    def _ended(self, command: Future[None]) -> None:
        """Tell of an error that no consumer should raise."""
        error = command.exception()
        if error is not None:
            self._hear({"failed": "".join(format_exception(error))})

    def _act(self, command: Command) -> None:
        match command["do"]:
            case "start":
                self._start(command)
            case "subscribe":
                self.consumer.subscribe(texts(command["topics"]), listener=self)
            case "poll":
                self._poll(str(command["ends_at"]))
            case "unsubscribe":
                self.consumer.unsubscribe()
            case "enforce_rebalance":
                self.consumer.enforce_rebalance(str(command["reason"]))
            case "commit":
                self._commit(cast("dict[str, int]", command["offsets"]))
            case "committed":
                self._committed(map(partition, texts(command["partitions"])))
            case "metrics":
                self._metrics(command)
            case "close":
                operation = GroupMembershipOperation[str(command["operation"])]
                self.consumer.close(operation=operation)
            case other:
                raise ValueError(f"{other} is not known")

    def _start(self, command: Command) -> None:
        settings = dict(cast("dict[str, object]", command["settings"]))
        names = settings.get("partition.assignment.strategy")
        if names is not None:
            known = {Hasty.name: Hasty()}
            strategy = [known.get(each, each) for each in str(names).split(",")]
            settings["partition.assignment.strategy"] = strategy
        settings["bootstrap.servers"] = self._servers
        self._actions = cast("dict[str, str]", command["actions"])
        try:
            self._consumer = Consumer.from_config(settings)
            self._consumer.subscribe(texts(command["topics"]), listener=self)
        except (ConfigError, ValueError):
            self._say("refused")

    def _poll(self, ends_at: str) -> None:
        """Poll until it is told to stop, or until what the command ends at has happened."""
        word, _, count = ends_at.partition(" ")
        self._happened.clear()
        while not self._stopping and word not in self._happened:
            try:
                found = self.consumer.poll(POLL_MS)
                self._read += sum(len(records) for records in found.values())
            except TOLD as error:  # it goes on polling, as in Java
                self._say(f"error {kind(error)}")
            self._tell_how()
            if word == "read" and self._read >= int(count):
                break

    def _commit(self, offsets: Mapping[str, int]) -> None:
        wanted = {partition(each): OffsetAndMetadata(at) for each, at in offsets.items()}
        self.consumer.commit(wanted or None)
        self._say("committed")

    def _committed(self, partitions: Iterable[TopicPartition]) -> None:
        stored = self.consumer.committed(*partitions)
        found = sorted(f"{text(each)}={position.offset}" for each, position in stored.items())
        self._say(f"stored {' '.join(found) or 'nothing'}")

    def _metrics(self, command: Command) -> None:
        values = self.consumer.metrics()[METRICS]
        for pattern in texts(command["names"]):
            for name in sorted(values):
                if re.fullmatch(pattern, name):
                    self._say(name)
        for name in texts(command["counts"]):
            self._say(f"{name} {int(values[name])}")
        for name, bound in cast("dict[str, int]", command["at_least"]).items():
            self._say(f"{name} {'at least' if values[name] >= bound else 'below'} {bound}")

    # ---------------------------------------------------------------------------- the listener

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        """See `RebalanceListener`."""
        self._called("revoked", partitions)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> None:
        """See `RebalanceListener`."""
        self._called("assigned", partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> None:
        """See `RebalanceListener`."""
        self._called("lost", partitions)

    def _called(self, change: str, partitions: frozenset[TopicPartition]) -> None:
        self._say(f"{change} {names(partitions)}")
        match self._actions.get(change):
            case "raise":
                raise Raised
            case "hold":
                self._hold()
            case "commit":
                self._commit_all(partitions)

    def _hold(self) -> None:
        self._holding = True
        self._tell_how()
        self._gate.acquire()
        self._holding = False

    def _commit_all(self, partitions: frozenset[TopicPartition]) -> None:
        try:
            self.consumer.commit({each: OffsetAndMetadata(7) for each in partitions})
            self._say("committed")
        except KafkaError as error:
            self._say(f"error {kind(error)}")

    # ------------------------------------------------------------------------------ what it says

    def _say(self, what: str) -> None:
        self._happened.append(what.partition(" ")[0])
        self._hear({"says": what})

    def _tell_how(self) -> None:
        """Tell how it is now, if that is news."""
        if self._consumer is None:
            return
        try:
            has = self._consumer.assignment()
        except LocalProtocolError:  # it is closed
            has = frozenset()
        how: dict[str, object] = {"holds": self._holding, "read": self._read}
        how |= {"has": names(has), "many": len(has)}
        how |= {"generation": self._consumer.generation_id, "id": self._consumer.member_id}
        if how != self._told:
            self._told = how
            self._hear(how)


def kind(error: KohortError | Raised) -> str:
    """A name for an error that does not depend on the client: that of Kafka's exception."""
    match error:
        case Raised():
            return "of the listener"
        case CommitFailedError():
            return "CommitFailed"
        case KafkaError():
            return error.name.title().replace("_", "")
        case KohortError():
            return "IllegalState"


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as a line of an answer has them."""
    return " ".join(sorted(map(text, partitions))) or "nothing"


def text(of: TopicPartition) -> str:
    """A partition as Kafka writes it."""
    return f"{of.topic}-{of.partition}"


def partition(name: str) -> TopicPartition:
    """The partition of such a text."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def texts(value: object) -> list[str]:
    """A list of a command."""
    return cast("list[str]", value)
