"""What public calls are given is checked where it enters, and a refused call changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from kohort.client import arguments
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
    (arguments.offset, -1, ValueError, "offset is -1; it must be at least 0"),
    (arguments.offset, 2**63, ValueError, "at most 9223372036854775807"),
    (arguments.offsets, [HERE], TypeError, "offsets must be a mapping"),
    (arguments.offsets, {HERE: None}, TypeError, "an OffsetAndMetadata or a whole number"),
    (arguments.offsets, {HERE: -1}, ValueError, r"offsets\['t-0'\] is -1"),
    (arguments.offsets, {"t": 0}, TypeError, "a key of offsets must be a TopicPartition"),
    (arguments.timestamps, {HERE: -1}, ValueError, "at least 0"),
    (arguments.timestamps, {HERE: 1.5}, TypeError, "a whole number"),
    (arguments.targets, {HERE: -7}, ValueError, "at least -6"),
    (arguments.timeout_ms, None, TypeError, "timeout_ms must be a number, not None"),
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


def test_what_was_given_is_shown_briefly() -> None:
    with pytest.raises(TypeError) as refused:
        arguments.topic(bytes(10_000))
    assert len(str(refused.value)) < 200
