"""Arguments of public calls are checked on entry, and a refused call changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer, RebalanceListener
from kohort.client.config import arguments
from kohort.types import OffsetAndMetadata, TopicPartition

HERE = TopicPartition("t", 0)

REFUSED: list[tuple[Callable[[object], object], object, type[Exception], str]] = [
    (arguments.topic, None, TypeError, "topic must be a str, not None"),
    (arguments.topic, 5, TypeError, r"topic must be a str, not 5 \(int\)"),
    (arguments.topic, b"t", TypeError, r"not b't' \(bytes\)"),
    (arguments.topic, "", ValueError, "topic is empty"),
    (arguments.topic, "..", ValueError, "not a topic's name"),
    (arguments.topic, "a/b", ValueError, "not a topic's name"),
    (arguments.topic, "t\n", ValueError, "not a topic's name"),
    (arguments.topic, "x" * 250, ValueError, "250 characters"),
    (arguments.topic, "\ud800", ValueError, "cannot be encoded"),
    (arguments.topics, "flights", TypeError, "topics must be several"),
    (arguments.topics, [None], TypeError, r"topics\[0\] must be a str"),
    (arguments.topics, None, TypeError, "topics must be a list"),
    (arguments.partition, "t", TypeError, "must be a TopicPartition"),
    (arguments.partition, ("t", -1), ValueError, r"partition\.partition is -1"),
    (arguments.partition, ("t", 2**31), ValueError, "at most 2147483647"),
    (arguments.partition, ("t", True), TypeError, "a whole number, not True"),
    (arguments.partitions, HERE, TypeError, "several partitions, not one"),
    (arguments.offset, 1.5, TypeError, "offset must be a whole number"),
    (arguments.offset, True, TypeError, "offset must be a whole number"),
    (arguments.offset, np.array([1]), TypeError, r"offset must be a whole number, not array"),
    (arguments.offset, -1, ValueError, "offset is -1; it must be at least 0"),
    (arguments.offset, 2**63, ValueError, "at most 9223372036854775807"),
    (arguments.offsets, [HERE], TypeError, "offsets must be a mapping"),
    (arguments.offsets, {HERE: None}, TypeError, "an OffsetAndMetadata or a whole number"),
    (arguments.offsets, {HERE: np.array([1])}, TypeError, r"offsets\['t-0'\] must be"),
    (arguments.offsets, {HERE: -1}, ValueError, r"offsets\['t-0'\] is -1"),
    (arguments.offsets, {"t": 0}, TypeError, "a key of offsets must be a TopicPartition"),
    (arguments.timestamps, {HERE: -1}, ValueError, "at least 0"),
    (arguments.timestamps, {HERE: 1.5}, TypeError, "a whole number"),
    (arguments.targets, {HERE: -7}, ValueError, "at least -6"),
    (arguments.timeout_ms, None, TypeError, "timeout_ms must be a number, not None"),
    (arguments.timeout_ms, np.array([1]), TypeError, "timeout_ms must be a number, not array"),
    (arguments.timeout_ms, math.nan, ValueError, "cannot be negative or NaN"),
    (arguments.timeout_ms, -1, ValueError, "cannot be negative"),
    (arguments.timeout_ms, "1", TypeError, "must be a number"),
    (arguments.headers, {"a": b""}, TypeError, r"list\(headers.items\(\)\)"),
    (arguments.headers, [("a", "b")], TypeError, "must be bytes or None"),
    (arguments.headers, [(None, b"b")], TypeError, "the name must be a str"),
    (arguments.headers, "ab", TypeError, "headers must be several"),
]

TAKEN: list[tuple[Callable[[object], object], object, object]] = [
    (arguments.topic, "a.b_c-9", "a.b_c-9"),
    (arguments.topics, {"t"}, ("t",)),
    (arguments.partition, ("t", 0), HERE),
    (arguments.partitions, iter([("t", np.int32(0))]), (HERE,)),
    (arguments.offset, np.int64(7), 7),
    (arguments.offsets, {("t", 0): 7}, {HERE: OffsetAndMetadata(7)}),
    (arguments.offsets, {HERE: OffsetAndMetadata(7, "m", 3)}, {HERE: OffsetAndMetadata(7, "m", 3)}),
    (arguments.targets, {HERE: -2}, {HERE: -2}),
    (arguments.timeout_ms, 0.5, 0.5),
    (arguments.timeout_ms, math.inf, 10**12),
    (arguments.timeout_ms, 10**400, 10**12),
    (arguments.timeout_ms_or_none, None, None),
    (arguments.headers, None, ()),
    (arguments.headers, [["a", None], ("b", b"c")], (("a", None), ("b", b"c"))),
]


@pytest.mark.parametrize(("check", "given", "error", "said"), REFUSED)
def test_refused(
    check: Callable[[object], object], given: object, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        check(given)


@pytest.mark.parametrize(("check", "given", "taken"), TAKEN)
def test_taken(check: Callable[[object], object], given: object, taken: object) -> None:
    found = check(given)
    assert found == taken
    assert type(found) is type(taken)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        broker.create_topic("t")
        yield broker.bootstrap_servers


def test_a_producer_goes_on_after_topics_that_are_none(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for wrong in (None, 5, b"t", ["t"]):
            with pytest.raises(TypeError, match="topic"):
                producer.send(wrong, b"v")  # type: ignore[arg-type]  # that is the point
        for name in ("", "a b", "x" * 250):
            with pytest.raises(ValueError, match="topic"):
                producer.send(name, b"v")
        assert producer.send("t", b"v", headers=None).result(30).topic == "t"


def test_a_consumer_goes_on_after_wrong_arguments(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("t", b"v")
    wrong: Any
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([HERE])
        for wrong in (None, 5, b"t"):
            with pytest.raises(TypeError, match="topic must be a str"):
                consumer.partitions_for_topic(wrong)
        for wrong, error in ((1.5, TypeError), (None, TypeError), (-1, ValueError)):
            with pytest.raises(error, match="offset"):
                consumer.seek(HERE, wrong)
        for wrong in ("t", [None], None):
            with pytest.raises(TypeError, match="topics"):
                consumer.subscribe(wrong)
        with pytest.raises(TypeError, match="several partitions, not one"):
            consumer.assign(HERE)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(TypeError, match="timeout_s must be a number"):
            consumer.close(None)  # type: ignore[arg-type]  # that is the point
        assert next(consumer).value == b"v"


def test_a_partition_may_be_a_plain_tuple(bootstrap: str) -> None:
    plain: Any = ("t", 0)
    one: Any = np.int64(1)
    with Consumer(bootstrap_servers=bootstrap, group_id="plain") as consumer:
        consumer.assign([plain])
        consumer.seek(plain, one)
        assert consumer.position(plain) == 1
        consumer.commit({plain: 1})
        assert consumer.committed(plain) == {HERE: OffsetAndMetadata(1)}


def test_a_pattern_that_cannot_be_compiled_leaves_the_subscription(bootstrap: str) -> None:
    with Consumer("t", bootstrap_servers=bootstrap, group_id="patterns") as consumer:
        consumer.poll()
        for wrong in ("(", "x{99999999999}", ""):
            with pytest.raises(ValueError, match="pattern"):
                consumer.subscribe(pattern=wrong)
        assert consumer.subscription() == {"t"}
        with pytest.raises(TypeError, match="listener must have on_partitions_revoked and"):
            consumer.subscribe(["t"], listener=RebalanceListener)  # type: ignore[arg-type]  # that is the point


def test_what_was_given_is_shown_briefly() -> None:
    with pytest.raises(TypeError) as refused:
        arguments.topic(bytes(10_000))
    assert len(str(refused.value)) < 200
