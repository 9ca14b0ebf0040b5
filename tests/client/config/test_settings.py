"""Each setting of each client has an effect that is visible from outside."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kohort import AdminClient, Consumer, Producer
from kohort.broker import EmbeddedBroker
from kohort.client.config.definitions import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    make,
)
from kohort.client.config.security import SecurityConfig
from kohort.errors import ConfigError
from kohort.group.assignors.range import RangeAssignor
from kohort.values import defaults
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import HeartbeatRequest, JoinGroupRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from kohort.wire.messages.produce import ProduceRequest
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from tests.broker.processes import DEADLINE_S, eventually
from tests.client.observing import (
    HOUR_MS,
    PLACE,
    Kind,
    Recorder,
    Settings,
    a_call,
    asks_bootstrap,
    bounded,
    calling,
    error_of,
    fetches,
    happens,
    idle,
    idles,
    in_words,
    is_short,
    listening,
    logged,
    often,
    records_of,
    refreshes,
    refusal,
    settings_of,
    to_the_leader,
    together,
)

KINDS: dict[type[ClientConfig], Kind] = {
    ConsumerConfig: Consumer,
    ProducerConfig: Producer,
    AdminConfig: AdminClient,
}
Observe: TypeAlias = Callable[[Recorder, Kind, Settings], object]
Case: TypeAlias = tuple[object, object, Observe]


# ----------------------------------------------------------------------------- every client


def which_server(recorder: Recorder, kind: Kind, given: Settings) -> object:
    limit = bounded(kind, 2_000) if given else {}
    with contextlib.closing(kind(**settings_of(recorder, {**limit, **given}))) as client:
        return error_of(lambda: a_call(client))


def client_ids(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with contextlib.closing(kind(**settings_of(recorder, given))) as client:
        a_call(client)
    return frozenset(recorder.client_ids)


def silence(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """How long a server may stay silent after it accepted the connection."""
    pattern, pause = r"in [\d.]+ s", threading.Event()
    with listening(lambda _: None) as (address, _), logged() as log:
        endless = {**bounded(kind, HOUR_MS), "bootstrap_servers": address, **given}
        client = kind(**endless)
        with calling(client, lambda: a_call(client)):
            eventually(lambda: bool(re.search(pattern, log())) or pause.wait(0.02), "a complaint")
        return in_words(pattern, log())


def length_of_a_call(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with contextlib.closing(kind(**{"bootstrap_servers": "127.0.0.1:1", **given})) as client:
        return in_words(r"longer than \d+ ms", error_of(lambda: a_call(client)))


def attempts(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether a missing topic is requested often."""
    base = {**bounded(kind, HOUR_MS), "retry_backoff_ms": HOUR_MS, "retry_backoff_max_ms": HOUR_MS}
    if kind is Consumer:
        base["allow_auto_create_topics"] = False
    client = kind(**settings_of(recorder, {**base, **given}))
    with calling(client, lambda: a_call(client, "is-not-there")):
        return happens(is_short(given), recorder.more_than(often(given), MetadataRequest))


def reconnects(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether the client often reconnects to a broker that hangs up."""
    base = {**bounded(kind, HOUR_MS), "retry_backoff_max_ms": 20, "retry_backoff_ms": 20}
    base |= {"reconnect_backoff_ms": HOUR_MS, "reconnect_backoff_max_ms": HOUR_MS}
    if kind is Producer:
        base |= {"delivery_timeout_ms": HOUR_MS, "enable_idempotence": False}
    with listening(lambda client: client.close()) as (address, accepted):
        host, _, port = address.rpartition(":")
        recorder.advertised = host, int(port)
        client = kind(**settings_of(recorder, {**base, **given}))
        with calling(client, lambda: to_the_leader(client)):
            return happens(is_short(given), lambda: len(accepted) > often(given))


def unanswered(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether several requests of a connection wait for answers at the same time."""
    base = {"linger_ms": 0} if kind is Producer else {}
    with contextlib.closing(kind(**settings_of(recorder, {**base, **given}))) as client:
        a_call(client)
        asked: type[Message] = ProduceRequest if kind is Producer else MetadataRequest
        # held first: the client may request metadata on its own, which would also count
        recorder.held.clear()
        before = len(recorder.asked(asked))
        numbers = itertools.count()

        def call() -> object:
            if isinstance(client, Producer):
                return client.send("t", b"value", partition=next(numbers) % 4)
            return client.topics() if isinstance(client, Consumer) else client.list_topics()

        calls = together(3, call)
        next(calls)

        def step() -> None:
            if isinstance(client, Producer):
                client.send("t", b"more", partition=next(numbers) % 4)
            idle()

        is_due = given["max_in_flight_requests_per_connection"] > 1
        found = happens(is_due, recorder.more_than(before + 1, asked), step)
        recorder.held.set()
        next(calls, None)
        return found


def is_refused(recorder: Recorder, kind: Kind, given: Settings) -> object:
    return refusal(kind, settings_of(recorder, given))


COMMON: dict[str, Case] = {
    "bootstrap_servers": (None, "127.0.0.1:1", which_server),
    "client_id": ("one", "two", client_ids),
    "request_timeout_ms": (200, 400, silence),
    "socket_connection_setup_timeout_ms": (200, 400, silence),
    "default_api_timeout_ms": (200, 300, length_of_a_call),
    "retry_backoff_ms": (10, HOUR_MS, attempts),
    "retry_backoff_max_ms": (10, HOUR_MS, attempts),
    "reconnect_backoff_ms": (10, HOUR_MS, reconnects),
    "reconnect_backoff_max_ms": (10, HOUR_MS, reconnects),
    "metadata_max_age_ms": (20, HOUR_MS, refreshes),
    "connections_max_idle_ms": (50, HOUR_MS, idles),
    "metadata_recovery_rebootstrap_trigger_ms": (50, HOUR_MS, asks_bootstrap),
    "max_in_flight_requests_per_connection": (1, 5, unanswered),
    "security_protocol": ("PLAINTEXT", "SASL_SSL", is_refused),
}

# ----------------------------------------------------------------------------- the consumer


def member(recorder: Recorder, given: Settings, step: Callable[[Consumer], bool]) -> list[Message]:
    """The requests of a member until a condition holds for it."""
    group = f"g-{uuid.uuid4().hex}"
    base: Settings = {"group_id": group, "auto_offset_reset": "earliest", **given}
    with Consumer(**settings_of(recorder, base)) as client:
        client.subscribe(["t"])
        eventually(lambda: step(client), "a member")
    return list(recorder.requests)


def assigned(client: Consumer) -> bool:
    client.poll(50)
    return bool(client.assignment())


def joins(recorder: Recorder, kind: Kind, given: Settings) -> object:
    member(recorder, given, assigned)
    join, *_ = recorder.asked(JoinGroupRequest)
    protocols = tuple((each.name, bytes(each.metadata)) for each in join.protocols)
    times = join.session_timeout_ms, join.rebalance_timeout_ms
    named = join.group_id if "group_id" in given else None
    return named, join.group_instance_id, times, protocols


def beats(recorder: Recorder, kind: Kind, given: Settings) -> object:
    member(recorder, {"group_protocol": "consumer", **given}, assigned)
    found = recorder.asked(ConsumerGroupHeartbeatRequest)
    if not found:
        return None
    names = tuple(each.name for each in found[0].client_assignors or ())
    return found[0].server_assignor, names


def heartbeats(recorder: Recorder, kind: Kind, given: Settings) -> object:
    def often(client: Consumer) -> bool:
        if not assigned(client):
            return False
        is_due = given["heartbeat_interval_ms"] == 50
        found.append(happens(is_due, recorder.more_than(2, HeartbeatRequest)))
        return True

    found: list[bool] = []
    member(recorder, given, often)
    return found


def commits(recorder: Recorder, kind: Kind, given: Settings) -> object:
    def stored(client: Consumer) -> bool:
        if not client.poll(50):
            return False
        is_due = given.get("auto_commit_interval_ms") == 50
        found.append(
            happens(is_due, recorder.more_than(0, OffsetCommitRequest), lambda: client.poll(20))
        )
        return True

    found: list[bool] = []
    member(recorder, {"max_poll_records": 1, **given}, stored)
    return found, bool(recorder.asked(OffsetCommitRequest))


def facts(recorder: Recorder, kind: Kind, given: Settings) -> object:
    told: list[object] = []
    listener = told.append if given["event_listener"] else None
    member(recorder, {"event_listener": listener}, assigned)
    return bool(told)


def subscribed(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with Consumer(
        **settings_of(recorder, {"group_id": f"g-{uuid.uuid4().hex}", **given})
    ) as client:
        client.subscribe(pattern=".*")
        eventually(lambda: assigned(client), "the topics that match")
        return {each.topic for each in client.assignment()}


def read(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """The first poll that returns records."""
    base = {"auto_offset_reset": "earliest", **given}
    with Consumer(**settings_of(recorder, base)) as client:
        client.assign([PLACE])
        found: list[tuple[object, object]] = []

        def poll() -> bool:
            records = client.poll(50).get(PLACE, [])
            found.extend((each.key, each.value) for each in records)
            return bool(found)

        eventually(poll, "records")
        return tuple(found)


def begins(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether the first record was written before the start, or after it."""
    with Consumer(**settings_of(recorder, given)) as client:
        client.assign([PLACE])
        start = client.position(PLACE)
        with Producer(**settings_of(recorder, {})) as producer:
            new = producer.send("t", b"new", partition=0).result(DEADLINE_S)
        return start, next(client).offset == new.offset


def fetched(recorder: Recorder, kind: Kind, given: Settings) -> object:
    read(recorder, kind, given)
    fetch = fetches(recorder)
    size = fetch.topics[0].partitions[0].partition_max_bytes
    limits = fetch.min_bytes, fetch.max_wait_ms, fetch.max_bytes, size
    return limits, fetch.isolation_level


def may_create(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with Consumer(**settings_of(recorder, given)) as client:
        a_call(client)
    return {each.allow_auto_topic_creation for each in recorder.asked(MetadataRequest)}


def may_create_by_sending(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with Producer(**settings_of(recorder, given)) as client:
        client.send("t", b"v").result(DEADLINE_S)
    return {each.allow_auto_topic_creation for each in recorder.asked(MetadataRequest)}


def damaged(recorder: Recorder, kind: Kind, given: Settings) -> object:
    recorder.damages = True
    base = {"auto_offset_reset": "earliest", **given}
    with Consumer(**settings_of(recorder, base)) as client:
        client.assign([PLACE])
        return error_of(lambda: eventually(lambda: bool(client.poll(50)), "records")) == ""


def ends(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether iteration ends by itself when no record arrives."""
    with Consumer(**settings_of(recorder, given)) as client:
        client.assign([PLACE])
        looping = threading.Thread(target=lambda: list(client))
        looping.start()
        ended = happens(given["consumer_timeout_ms"] == 50, lambda: not looping.is_alive())
        client.wakeup()
        looping.join()
        return ended


def told_of_commits(recorder: Recorder, kind: Kind, given: Settings) -> object:
    told: list[object] = []
    on_commit = (lambda offsets, _: told.append(offsets)) if given["on_commit"] else None
    member(recorder, {"on_commit": on_commit}, lambda client: bool(client.poll(50)))
    return bool(told)


CONSUMER: dict[str, Case] = {
    "group_id": ("one", "two", joins),
    "group_instance_id": (None, "me", joins),
    "group_protocol": ("classic", "consumer", beats),
    "group_remote_assignor": (None, "range", beats),
    "group_local_assignors": ((), (RangeAssignor(),), beats),
    "session_timeout_ms": (10_000, 20_000, joins),
    "heartbeat_interval_ms": (50, 40_000, heartbeats),
    "max_poll_interval_ms": (10_000, 20_000, joins),
    "max_poll_records": (1, 3, read),
    "partition_assignment_strategy": ("range", "cooperative-sticky", joins),
    "enable_auto_commit": (True, False, commits),
    "auto_commit_interval_ms": (50, HOUR_MS, commits),
    "enable_auto_offset_store": (True, False, commits),
    "auto_offset_reset": ("earliest", "latest", begins),
    "isolation_level": ("read_committed", "read_uncommitted", fetched),
    "fetch_min_bytes": (1, 2, fetched),
    "fetch_max_wait_ms": (50, 100, fetched),
    "fetch_max_bytes": (1_000_000, 2_000_000, fetched),
    "max_partition_fetch_bytes": (1_000, 2_000, fetched),
    "check_crcs": (True, False, damaged),
    "client_rack": (None, "a", joins),
    "allow_auto_create_topics": (True, False, may_create),
    "exclude_internal_topics": (True, False, subscribed),
    "key_deserializer": (None, bytes.decode, read),
    "value_deserializer": (None, bytes.decode, read),
    "consumer_timeout_ms": (50, HOUR_MS, ends),
    "on_commit": (False, True, told_of_commits),
    "event_listener": (False, True, facts),
}

# ----------------------------------------------------------------------------- the producer


def produced(recorder: Recorder, kind: Kind, given: Settings) -> object:
    key = b"k" if given.get("key_serializer") is None else "a longer key"
    value = b"v" * 1_000 if given.get("value_serializer") is None else "value"
    with Producer(**settings_of(recorder, given)) as client:
        error = error_of(lambda: client.send("t", value, key=key).result(DEADLINE_S))
    acks = [each.acks for each in recorder.asked(ProduceRequest)]
    lengths = [len(each) for each in records_of(recorder.asked(ProduceRequest))]
    return error, acks, lengths, bool(recorder.asked(InitProducerIdRequest))


def at_once(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether records are sent without being flushed."""
    base = {"linger_ms": HOUR_MS, "delivery_timeout_ms": 2 * HOUR_MS, **given}
    with Producer(**settings_of(recorder, base)) as client:
        for _ in range(5):
            client.send("t", bytes(100), partition=0)
        is_due = given.get("linger_ms") == 0 or given.get("batch_size") == 150
        return happens(is_due, recorder.more_than(0, ProduceRequest))


def refused(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with Producer(**settings_of(recorder, given)) as client:
        return error_of(lambda: client.send("t", bytes(2_000)).result(DEADLINE_S))


def blocked(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with Producer(**{"bootstrap_servers": "127.0.0.1:1", **given}) as client:
        return in_words(r"longer than \d+ ms", error_of(lambda: client.send("t", b"v")))


def given_up(recorder: Recorder, kind: Kind, given: Settings) -> object:
    recorder.advertised = "127.0.0.1", 1
    with Producer(**settings_of(recorder, {"linger_ms": 0, **given})) as client:
        text = error_of(lambda: client.send("t", b"v").result(DEADLINE_S))
        return in_words(r"\d+ ms", text)


def begun(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """The producer of a transaction that begins."""
    with Producer(**settings_of(recorder, given)) as client, client.transaction():
        return [each.transactional_id for each in recorder.asked(InitProducerIdRequest)]


PRODUCER: dict[str, Case] = {
    "acks": ("all", 1, produced),
    "enable_idempotence": (True, False, produced),
    "compression_type": ("none", "gzip", produced),
    "linger_ms": (0, HOUR_MS, at_once),
    "batch_size": (150, 100_000, at_once),
    "buffer_memory": (1_000, 1_000_000, refused),
    "max_request_size": (1_000, 1_000_000, refused),
    "max_block_ms": (200, 300, blocked),
    "delivery_timeout_ms": (300, 400, given_up),
    "allow_auto_create_topics": (True, False, may_create_by_sending),
    "partitioner": ("murmur2", lambda _topic, _key, count: count, produced),
    "key_serializer": (None, str.encode, produced),
    "value_serializer": (None, str.encode, produced),
    "transactional_id": ("one", "two", begun),
}

# -------------------------------------------------------------------------- the admin client


def of_group(recorder: Recorder, kind: Kind, given: Settings) -> object:
    with AdminClient(**settings_of(recorder, given)) as client:
        client.list_group_offsets()
    return [group.group_id for each in recorder.asked(OffsetFetchRequest) for group in each.groups]


ADMIN: dict[str, Case] = {"group_id": ("one", "two", of_group)}

OWN: dict[type[ClientConfig], dict[str, Case]] = {
    ConsumerConfig: CONSUMER,
    ProducerConfig: PRODUCER,
    AdminConfig: ADMIN,
}
# Refused without a security protocol that uses them: tests/client/config/test_security_config.py.
SECURITY = set(SecurityConfig.__struct_fields__) - {"security_protocol"}

# Other settings that go with a value, which is refused alone.
WITH: dict[str, Settings] = {
    "acks": {"enable_idempotence": False},
    "retry_backoff_max_ms": {"retry_backoff_ms": 10},
    "reconnect_backoff_max_ms": {"reconnect_backoff_ms": 10},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder, auto_create_topics=False) as started:
        started.create_topic("t", partitions=4)
        with Producer(bootstrap_servers=started.bootstrap_servers) as writer:
            for number in range(10):
                writer.send("t", b"value %d" % number, key=b"key", partition=0)
        yield started.bootstrap_servers


def cases() -> Iterator[tuple[type[ClientConfig], str]]:
    for config in KINDS:
        for name, default in defaults(config).items():
            if name in SECURITY:
                continue
            if "has no effect" not in error_of(lambda: make(config, {name: default})):  # noqa: B023  # called at once
                yield config, name


@pytest.mark.parametrize(("config", "name"), list(cases()))
def test_a_setting_changes_something(broker: str, config: type[ClientConfig], name: str) -> None:
    case = OWN[config].get(name) or COMMON.get(name)
    assert case is not None, f"no observation for {name} of {config.__name__}"
    first, second, observe = case
    seen = []
    for value in (first, second):
        given = {name: value, **WITH.get(name, {})}
        if name == "bootstrap_servers" and value is None:
            given = {}
        with Recorder(broker) as recorder:
            seen.append(observe(recorder, KINDS[config], given))
    assert seen[0] != seen[1], f"{name} changes nothing: {seen[0]!r}"


def test_nothing_is_observed_that_is_no_setting() -> None:
    for config, own in OWN.items():
        assert own.keys() <= defaults(config).keys()
        assert COMMON.keys() <= defaults(config).keys()


def test_what_would_have_no_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set max\.block\.ms or delivery\.timeout\.ms"):
        Producer(default_api_timeout_ms=1)
    shared = {"default.api.timeout.ms": "1000", "bootstrap.servers": "127.0.0.1:1"}
    Producer.from_config(shared).close()
