"""What `kohort streams` shows."""

from __future__ import annotations

import pytest

from kohort.cli.streams import _inputs
from kohort.types import TopicPartition


@pytest.mark.parametrize(("partitions", "shown"), [
    ([], "-"),
    ([("a", 0)], "a 0"),
    ([("a", 3), ("a", 1), ("a", 2), ("a", 7), ("b", 0)], "a 1-3,7\nb 0"),
])  # fmt: skip
def test_inputs_are_shown_by_topic(partitions: list[tuple[str, int]], shown: str) -> None:
    assert _inputs(TopicPartition(*each) for each in partitions) == shown
