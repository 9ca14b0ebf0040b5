"""Call every public method of every client with arbitrary arguments, followed by a canary.

A call works as documented or raises one of its documented errors, and the client stays usable: it
still reads, writes or answers. Methods are found by `inspect`, so new ones are fuzzed, too.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import reprlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kohort.broker import EmbeddedBroker
from kohort.client import (
    AclBinding,
    AclBindingFilter,
    AdminClient,
    AsyncAdminClient,
    AsyncConsumer,
    AsyncProducer,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    RebalanceListener,
)
from kohort.client.config.definitions import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
)
from kohort.errors import BrokerUnavailableError, KohortError, RequestTimedOutError
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.values import defaults

CANARY = TopicPartition("canary", 0)
SCRATCH = TopicPartition("scratch", 0)
NOW = datetime.now(UTC)
LONG_S = 30

# Short timeouts, or calls would wait for missing topics.
COMMON: dict[str, Any] = {"default_api_timeout_ms": 300}
MEMBER: dict[str, Any] = COMMON | {"auto_offset_reset": "earliest", "enable_auto_commit": False}
WRITER: dict[str, Any] = {
    "max_block_ms": 300,
    "delivery_timeout_ms": 1_000,
    "linger_ms": 0,
}


# ----------------------------------------------------------------------------------- arguments

TOPIC = ConfigResource("topic", "scratch")
ODD: tuple[object, ...] = (
    *(None, True, object(), ..., re.compile(b"x")),
    *(-(2**70), -(2**31), -7, -1, 0, 1, 3, 2**31, 2**63, 2**70),
    *(0.5, 1e300, math.nan, -math.inf),
    *("", "t", "scratch", "a b", "..", "\ud800", "\0", "x" * 300, "y" * 40_000),
    *(b"", b"scratch", bytearray(b"x"), memoryview(b"abcd").cast("I")),
    *(SCRATCH, TopicPartition("scratch", -1), TopicPartition(5, 0), TopicPartition("", 2**31)),  # type: ignore[arg-type]  # that is the point
    *(OffsetAndMetadata(-1), OffsetAndMetadata(1, None), OffsetAndMetadata(1, "m", 2**40)),  # type: ignore[arg-type]  # that is the point
)
SHAPES: tuple[Callable[[object, object], object], ...] = (
    lambda one, other: one,
    lambda one, other: one,
    lambda one, other: [],
    lambda one, other: [one],
    lambda one, other: (one, other),
    lambda one, other: iter([one, other]),
    lambda one, other: [(one, other)],
    lambda one, other: {SCRATCH: one},
    lambda one, other: {"scratch": one},
    lambda one, other: {TOPIC: {"retention.ms": one}},
    lambda one, other: {} if isinstance(one, (bytearray, memoryview)) else {one: other},
    lambda one, other: set() if isinstance(one, (bytearray, memoryview)) else {one},
)


def anything(data: st.DataObject) -> object:
    shape = SHAPES[data.draw(st.integers(0, len(SHAPES) - 1))]
    one, other = (ODD[data.draw(st.integers(0, len(ODD) - 1))] for _ in range(2))
    return shape(one, other)


PLACES = st.sampled_from([SCRATCH, ("scratch", 0), TopicPartition("scratch", 9)])
NAMES = st.sampled_from(["scratch", "nowhere", "another"])
SHORT = st.sampled_from([0, 0.5, 5])
OFFSETS = st.dictionaries(PLACES, st.one_of(st.just(1), st.just(OffsetAndMetadata(1, "m"))))
ACL = AclBinding(resource_type="topic", name="scratch", principal="User:fuzz", operation="read")
RECORD = ConsumerRecord("scratch", 0, 0, 0, 0, None, None, (), -1)

# Valid values of a parameter, by its name.
MEANT: dict[str, st.SearchStrategy[object]] = {
    "topic": NAMES,
    "topics": st.lists(NAMES, max_size=2),
    "names": st.just(["another"]),
    "counts": st.just({"scratch": 2}),
    "partition": PLACES,
    "partitions": st.lists(PLACES, max_size=2),
    "pattern": st.sampled_from([None, "scr.*", re.compile("scr.*"), "("]),
    "listener": st.sampled_from([None, RebalanceListener()]),
    "offset": st.just(0),
    "offsets": st.one_of(OFFSETS, st.just(RECORD)),
    "targets": st.dictionaries(PLACES, st.sampled_from([-2, -1, 5])),
    "timestamps": st.dictionaries(PLACES, st.just(5)),
    "timeout_ms": SHORT,
    "timeout_s": SHORT,
    "timeout": SHORT,
    "group_metadata": st.just(ConsumerGroupMetadata("group")),
    "max_records": st.sampled_from([None, 1, 5]),
    "group_ids": st.just(["fuzzed"]),
    "states_filter": st.sampled_from([(), ["Empty"], ["no such state"]]),
    "types_filter": st.sampled_from([(), ["classic", "consumer"]]),
    "offset_specs": st.dictionaries(
        PLACES, st.sampled_from(["earliest", "latest", 0, 2**63 - 1, NOW])
    ),
    "member_ids": st.just(["fuzzed"]),
    "group_id": st.sampled_from([None, "fuzzed"]),
    "on_commit": st.sampled_from([None, lambda offsets, error: None]),
    "operation": st.sampled_from(GroupMembershipOperation),
    "reason": st.just("fuzz"),
    "value": st.just(b"v"),
    "key": st.just(b"k"),
    "headers": st.sampled_from([(), None, [("a", b"1")]]),
    "timestamp_ms": st.sampled_from([None, 5]),
    "resources": st.just([TOPIC]),
    "changes": st.sampled_from([{TOPIC: {"retention.ms": "5"}}, {TOPIC: {"retention.ms": None}}]),
    "validate_only": st.booleans(),
    "acls": st.just([ACL]),
    "acl_filter": st.sampled_from([None, AclBindingFilter(name="scratch")]),
    "acl_filters": st.just([AclBindingFilter(principal="User:fuzz")]),
    "table": st.just(pa.record_batch({"value": ["fuzz"]})),
}
WRITTEN = MEANT | {"partition": st.sampled_from([None, 0, 9])}
CREATED = MEANT | {"topics": st.just([NewTopic("another", 1)])}


def value_of(data: st.DataObject, name: str, meant: st.SearchStrategy[object]) -> object:
    """A valid or arbitrary value; but no long timeout, because the client would obey it."""
    value = data.draw(meant, name) if data.draw(st.booleans()) else anything(data)
    if name.startswith("timeout") and isinstance(value, (int, float)) and value > 5:
        value = 5
    note(f"{name} = {reprlib.repr(value)}")
    return value


def drawn(
    data: st.DataObject, call: Callable[..., object], meant: Mapping[str, Any]
) -> tuple[list[object], dict[str, object]]:
    """Arguments of a call, half of them valid so that the others are reached."""
    positional: list[object] = []
    named: dict[str, object] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            count = data.draw(st.integers(0, 2))
            positional += [value_of(data, name, meant[name.removesuffix("s")])] * count
        elif parameter.default is parameter.empty or data.draw(st.booleans()):
            named[name] = value_of(data, name, meant[name])
    return positional, named


# ------------------------------------------------------------------------------------- clients


class Subject:
    """A client under test, with its canary.

    Args:
        kind: The class of the client.
        bootstrap: Address of its broker.
        more: More settings.
    """

    meant: Mapping[str, Any] = MEANT

    def __init__(self, kind: Any, bootstrap: str, more: Mapping[str, Any]) -> None:
        self.kind = kind
        self.loop = asyncio.Runner() if kind.__name__.startswith("Async") else None
        self.client = kind(bootstrap_servers=bootstrap, **more)

    def call(self, method: Callable[..., object], *args: object, **named: object) -> object:
        """Make a call, and wait for its result."""

        async def call() -> object:
            result = method(*args, **named)
            while inspect.isawaitable(result):
                result = await _in_time(result)
            return result

        if self.loop is not None:
            return self.loop.run(call())
        result = method(*args, **named)
        return result.result(LONG_S) if isinstance(result, Future) else result

    def works(self) -> None:
        """Check that the client works, with retries: its calls have short timeouts."""
        end = time.monotonic() + LONG_S
        while True:
            try:
                return self.canary()
            except (RequestTimedOutError, BrokerUnavailableError):
                assert time.monotonic() < end

    def canary(self) -> None:
        """Check once that the client works."""
        raise NotImplementedError

    def close(self) -> None:
        self.call(self.client.close)
        if self.loop is not None:
            self.loop.close()


async def _in_time(awaited: Awaitable[object]) -> object:
    return await asyncio.wait_for(awaited, LONG_S)


class Reading(Subject):
    def canary(self) -> None:
        self.call(self.client.unsubscribe)
        self.call(self.client.assign, [CANARY])
        self.call(self.client.resume, CANARY)
        self.call(self.client.seek, CANARY, 0)
        found: Any = {}
        while not found:
            found = self.call(self.client.poll, 1_000)
        assert [record.value for record in found[CANARY]] == [b"sings"]


class Writing(Subject):
    meant = WRITTEN

    def canary(self) -> None:
        sent: Any = self.call(self.client.send, CANARY.topic, b"sings", partition=1)
        assert (sent.topic, sent.partition) == (CANARY.topic, 1)


class Managing(Subject):
    meant = CREATED

    def canary(self) -> None:
        assert self.call(self.client.list_offsets, {CANARY: -1}) == {CANARY: 1}


KINDS: dict[type, tuple[type[Subject], dict[str, Any]]] = {
    Consumer: (Reading, MEMBER | {"group_id": "blocking"}),
    AsyncConsumer: (Reading, MEMBER | {"group_id": "asyncio"}),
    Producer: (Writing, WRITER),
    AsyncProducer: (Writing, WRITER),
    AdminClient: (Managing, COMMON | {"group_id": "fuzzed"}),
    AsyncAdminClient: (Managing, COMMON | {"group_id": "fuzzed"}),
}

CONFIGS: dict[type, type[ClientConfig]] = {
    Reading: ConsumerConfig,
    Writing: ProducerConfig,
    Managing: AdminConfig,
}

# What would end the client, or make another one.
LEFT_OUT = {"close", "from_config"}


def calls() -> Iterator[tuple[type, str]]:
    """All public methods with parameters."""
    for kind in KINDS:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            takes = len(inspect.signature(method).parameters) > 1
            if not name.startswith("_") and name not in LEFT_OUT and takes:
                yield kind, name


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder, auto_create_topics=False) as broker:
        broker.create_topic(CANARY.topic, 2)
        broker.create_topic(SCRATCH.topic)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(CANARY.topic, b"sings", partition=0).result(LONG_S)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def subjects(bootstrap: str) -> Iterator[dict[type, Subject]]:
    made = {kind: face(kind, bootstrap, more) for kind, (face, more) in KINDS.items()}
    yield made
    for subject in made.values():
        subject.close()


# --------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1]}") for each in calls()]
)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_anything_is_done_or_refused(
    subjects: dict[type, Subject], kind: type, name: str, data: st.DataObject
) -> None:
    subject = subjects[kind]
    method = getattr(subject.client, name)
    args, named = drawn(data, method, subject.meant)
    try:
        subject.call(method, *args, **named)
    except (KohortError, TypeError, ValueError) as error:
        note(str(error))
    subject.works()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_closing_takes_anything_or_refuses_it(
    bootstrap: str, kind: type, data: st.DataObject
) -> None:
    face, more = KINDS[kind]
    subject = face(kind, bootstrap, more)
    try:
        args, named = drawn(data, subject.client.close, subject.meant)
        try:
            subject.call(subject.client.close, *args, **named)
        except (TypeError, ValueError) as error:
            note(str(error))
            subject.works()
    finally:
        subject.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_setting_is_taken_or_refused_by_its_name(kind: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(defaults(CONFIGS[KINDS[kind][0]]))), "setting")
    value = anything(data)
    note(f"{name} = {reprlib.repr(value)}")
    refusal = ""
    try:
        made = kind(**{name: value})
    except (KohortError, TypeError, ValueError) as error:
        refusal = str(error)
    else:
        asyncio.run(made.close()) if kind.__name__.startswith("Async") else made.close()
    assert not refusal or name.replace("_", ".") in refusal
