"""The partition of `__consumer_offsets` for a group, compared with known hashes of Java strings."""

from __future__ import annotations

import pytest

from kohort.broker.coordination.coordinator import partition_of

# From the documentation of Java's String, and the well-known text whose hash has no absolute value.
HASHES = {"": 0, "a": 97, "hello": 99_162_322, "polygenelubricants": -(1 << 31)}


@pytest.mark.parametrize(("group_id", "code"), HASHES.items())
def test_c1_a_group_lives_where_kafka_looks_for_it(group_id: str, code: int) -> None:
    """C1: also for the only hash that has no absolute value."""
    absolute = 0 if code == -(1 << 31) else abs(code)
    assert partition_of(group_id, 50) == absolute % 50
