"""What a harness does to groups, topics and clients, seen by a service that runs meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kohort import AdminClient, Consumer, Producer, RebalanceListener, TopicPartition
from kohort.broker import EmbeddedBroker, Security
from kohort.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    KohortError,
    PartialFailureError,
    RemoteProtocolError,
)
from kohort.testing import HarnessError, KafkaHarness
from kohort.testing.strategies import group_histories, records, subscriptions, topics
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaHarness]:
    if request.param == "kafka":
        real: RealKafka = request.getfixturevalue("real_kafka")
        yield KafkaHarness(real.bootstrap_servers)
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("harness")) as broker:
        yield KafkaHarness(broker.bootstrap_servers, broker)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[KafkaHarness]:
    with EmbeddedBroker(tmp_path) as broker:
        yield KafkaHarness(broker.bootstrap_servers, broker)


class Service(RebalanceListener):
    """A consumer that polls in a thread of its own, and notes what happens to it."""

    def __init__(self, kafka: KafkaHarness, topic: str, **settings: object) -> None:
        self.heard: list[str] = []
        self.error: KohortError | None = None
        self._over = threading.Event()
        given = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "client.id": "service",
            **settings,
        }
        if settings.get("group.protocol") != "consumer":
            given["heartbeat.interval.ms"] = 100
        self.consumer = Consumer.from_config(given)
        self.consumer.subscribe([topic], listener=self)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.heard += ["assigned"] * bool(partitions)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.heard += ["revoked"] * bool(partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.heard += ["lost"] * bool(partitions)

    def __enter__(self) -> Self:
        self._thread.start()
        self.hears("assigned")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.consumer.poll(50)
            except KohortError as error:
                self.error = error

    def waited(self) -> bool:
        """Wait a little."""
        return not self._over.wait(0.02)

    def hears(self, word: str) -> None:
        """Wait until it was told so, after what it was told before."""
        eventually(lambda: self.waited() and word in self.heard, f"{word}: {self.heard}")
        self.heard = self.heard[self.heard.index(word) + 1 :]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_rebalance_takes_partitions_away_and_gives_them_back(
    kafka: KafkaHarness, protocol: str
) -> None:
    topic = kafka.create_topic(partitions=4)
    with Service(kafka, topic, **{"group.protocol": protocol}) as service:
        kafka.wait_for_members(topic, 1)
        kafka.rebalance(topic)
        service.hears("revoked")
        service.hears("assigned")
        described = kafka.wait_for_members(topic, 1)
        assert {each.client_id for each in described.members} == {"service"}
    assert kafka.committed(topic).keys() <= {TopicPartition(topic, each) for each in range(4)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_expired_has_lost_its_partitions(kafka: KafkaHarness, protocol: str) -> None:
    topic = kafka.create_topic(partitions=2)
    with Service(kafka, topic, **{"group.protocol": protocol}) as service:
        with pytest.raises(HarnessError, match="has no member of client other; it has service"):
            kafka.expire_member(topic, "other")
        kafka.expire_member(topic, "service")
        service.hears("lost")
        service.hears("assigned")


def test_a_static_member_is_fenced(kafka: KafkaHarness) -> None:
    topic = kafka.create_topic()
    with Service(kafka, topic, **{"group.instance.id": "one"}) as service:
        kafka.fence(topic, "one")
        eventually(lambda: service.waited() and service.error is not None, "that it is fenced")
        assert "FENCED_INSTANCE_ID" in str(service.error)


def test_what_is_there_can_expire(kafka: KafkaHarness) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, b"one", None, key=b"key")
    assert [record.value for record in kafka.records(topic)] == [b"one", None]
    kafka.expire_records(topic)
    assert kafka.records(topic) == []
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.commit({TopicPartition(topic, 0): 2})
    assert kafka.committed(topic) == {TopicPartition(topic, 0): 2}
    kafka.expire_offsets(topic)
    assert kafka.committed(topic) == {}
    kafka.delete_group(topic)
    kafka.delete_group(topic)
    kafka.delete_topic(topic)
    kafka.delete_topic(topic)
    with pytest.raises(HarnessError, match=f"there is no topic {topic}"):
        kafka.records(topic)
    with pytest.raises(HarnessError, match="has no members: start them before"):
        kafka.rebalance(topic)


# ------------------------------------------------------------------- of the embedded broker only


def test_a_fault_is_for_the_service_and_not_for_the_harness(embedded: KafkaHarness) -> None:
    topic = embedded.create_topic()
    with (
        embedded.fault("disconnect", api="Produce", topic=topic, effect=True) as lost,
        embedded.fault("error", api="OffsetFetch", error="NOT_COORDINATOR", times=3) as refused,
    ):
        embedded.produce(topic, b"seed")
        assert embedded.lag("group", topic) == {TopicPartition(topic, 0): 1}
        assert (lost.seen, refused.seen) == (0, 0)
        with Producer(bootstrap_servers=embedded.bootstrap_servers) as producer:
            producer.send(topic, b"value").result(60)
        assert lost.hits == 1


def test_a_muted_client_hears_nothing_until_the_end(embedded: KafkaHarness) -> None:
    topic = embedded.create_topic()
    servers = embedded.bootstrap_servers
    with Producer(bootstrap_servers=servers, client_id="deaf", request_timeout_ms=60_000) as deaf:
        deaf.send(topic, b"one").result(60)
        with embedded.mute("deaf") as muted:
            future = deaf.send(topic, b"two")
            eventually(lambda: muted.hits > 0, "that it asks")
            embedded.produce(topic, b"three")
            assert not future.done()
        future.result(60)
    assert [record.value for record in embedded.records(topic)] == [b"one", b"three", b"two"]


def test_a_service_outlives_a_coordinator_that_is_elsewhere(embedded: KafkaHarness) -> None:
    topic = embedded.create_topic()
    with Service(embedded, topic) as service:
        with embedded.moved_coordinator(topic) as moved:
            eventually(lambda: service.waited() and moved.hits >= 3, "refusals")
        embedded.rebalance(topic)
        service.hears("assigned")


def test_a_topic_that_is_not_there_is_told_and_not_made(embedded: KafkaHarness) -> None:
    calls: list[Callable[[], object]] = [
        lambda: embedded.produce("missing", b"value"),
        lambda: embedded.lag("group", "missing"),
        lambda: embedded.expire_records("missing"),
        lambda: embedded.records("missing"),
    ]
    for call in calls:
        with pytest.raises(HarnessError, match="there is no topic missing"):
            call()
    with pytest.raises(HarnessError, match="there is no group missing"):
        embedded.expire_offsets("missing")
    with AdminClient(bootstrap_servers=embedded.bootstrap_servers) as admin:
        assert not admin.list_topics()


def test_a_topic_is_known_once_it_is_made(
    embedded: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, late = AdminClient.describe_topics, ["late"] * 3

    def describe_late(admin: AdminClient, topics: Iterable[str]) -> object:
        """Answer as a broker to which the news of a topic comes late."""
        if late:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise PartialFailureError({late.pop(): KafkaError(code)})
        return describe(admin, topics)

    monkeypatch.setattr(AdminClient, "describe_topics", describe_late)
    embedded.create_topic("late", partitions=2)
    assert not late


def test_a_call_that_is_not_answered_is_an_error_of_the_harness(
    embedded: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.create_topic("topic")
    monkeypatch.setattr("kohort.testing.harness_clients.DEADLINE_S", 0.3)
    calls: dict[str, Callable[[], object]] = {
        "Produce": lambda: embedded.produce("topic", b"value"),
        "OffsetFetch": lambda: embedded.committed("group"),
        "ListOffsets": lambda: embedded.records("topic"),
    }
    for api, call in calls.items():
        deaf = embedded.fault("silence", api=api, client_id="kohort-harness", times=0)
        with deaf, pytest.raises(HarnessError, match=r"^not within 0\.3 s: "):
            call()


def test_what_cannot_be_written_is_told(embedded: KafkaHarness) -> None:
    topic = embedded.create_topic()
    refused = embedded.fault(
        "error", api="Produce", error="TOPIC_AUTHORIZATION_FAILED", client_id="kohort-harness"
    )
    with refused, pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        embedded.produce(topic, b"value")


def test_a_record_is_corrupt_where_it_was_said(embedded: KafkaHarness) -> None:
    topic = embedded.create_topic()
    for value in (b"one", b"two", b"three"):
        embedded.produce(topic, value)
    with pytest.raises(HarnessError, match=f"{topic}-0 has no offset 7"):
        embedded.corrupt(topic, 0, 7)
    embedded.corrupt(topic, 0, 1)
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=embedded.bootstrap_servers) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[bytes | None] = []

        def fails() -> bool:
            try:
                found.extend(each.value for each in consumer.poll(100).get(place, []))
            except (RemoteProtocolError, KafkaError):
                return True
            return False

        eventually(fails, "that the record is corrupt")
    assert found == [b"one"]


def test_what_another_kafka_cannot(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        other = KafkaHarness(broker.bootstrap_servers)
        assert not other.is_embedded
        for ask in (
            lambda: other.faults,
            lambda: other.mute("c"),
            lambda: other.moved_coordinator("g"),
            lambda: other.corrupt("t"),
        ):
            with pytest.raises(HarnessError, match="only an embedded broker can do that"):
                ask()


def test_a_fault_with_a_wrong_argument(embedded: KafkaHarness) -> None:
    with pytest.raises(ConfigError, match="unknown field `topics`"):
        embedded.fault("silence", topics="a")
    with pytest.raises(ConfigError, match="Expected `int`"):
        embedded.fault("silence", nth="first")


# ------------------------------------------------------------------------------------ strategies


@settings(max_examples=15)
@given(data=st.data())
def test_what_is_drawn_can_be_sent(data: st.DataObject, kafka: KafkaHarness) -> None:
    wanted = data.draw(st.lists(records(50), min_size=1, max_size=10))
    topic = kafka.create_topic()
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value, key, headers in wanted:
            producer.send(topic, value, key, headers, partition=0)
    found = [(each.value, each.key, list(each.headers)) for each in kafka.records(topic)]
    assert found == [tuple(each) for each in wanted]
    kafka.delete_topic(topic)


@settings(max_examples=10)
@given(name=topics())
def test_each_topic_that_is_drawn_can_be_made(name: str, embedded_once: KafkaHarness) -> None:
    try:
        embedded_once.create_topic(name)
    except KohortError as error:  # "a.b" after "a_b", which Kafka refuses too
        assert "collides" in str(error) or "TOPIC_ALREADY_EXISTS" in str(error)  # noqa: PT017  # either is right


@pytest.fixture(scope="module")
def embedded_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaHarness]:
    with EmbeddedBroker(tmp_path_factory.mktemp("names")) as broker:
        yield KafkaHarness(broker.bootstrap_servers, broker)


@given(history=group_histories(3, 30), wanted=subscriptions(["a", "b", "c"]))
def test_members_join_before_anything_else(
    history: list[tuple[str, int]], wanted: set[str]
) -> None:
    present: set[int] = set()
    for action, member in history:
        assert (action == "join") == (member not in present)
        present.add(member)
        if action in ("leave", "kill"):
            present.discard(member)
    assert wanted
    assert wanted <= {"a", "b", "c"}


@pytest.mark.parametrize("is_told", [False, True])
def test_a_secured_broker(is_told: bool) -> None:
    """It is the first user of an embedded broker, unless it is given settings."""
    users = {"root": "root-secret", "bob": "bob-secret"}
    security = Security("SASL_PLAINTEXT", users=users, super_users=["root"])
    with EmbeddedBroker(security=security) as broker:
        settings = broker.client_settings("root")
        del settings["bootstrap.servers"]
        kafka = KafkaHarness(broker.bootstrap_servers, broker)
        if is_told:
            kafka = KafkaHarness(broker.bootstrap_servers, settings=settings).apart()
        kafka.reach(60)
        topic = kafka.create_topic()
        kafka.produce(topic, b"one")
        assert [each.value for each in kafka.records(topic)] == [b"one"]
        assert kafka.committed("g") == {}


def test_settings_of_a_harness_may_have_underscores() -> None:
    security = Security("SASL_PLAINTEXT", users={"bob": "bob-secret"})
    with EmbeddedBroker(security=security) as broker:
        settings = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "bob",
            "sasl_password": "bob-secret",
        }
        assert KafkaHarness(broker.bootstrap_servers, settings=settings).create_topic("t") == "t"
