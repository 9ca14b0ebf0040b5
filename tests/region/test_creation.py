"""What keeps a region from being created."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.errors import ConfigError
from kohort.region import ParquetDirectory, RegionConsumer
from kohort.region.candidate import Candidate


@pytest.mark.parametrize("name", ["", "a/b ../x", "caf\u00e9", "x" * 228])
def test_a_name_that_no_topic_can_have_is_refused_at_once(name: str, tmp_path: Path) -> None:
    sink = ParquetDirectory(tmp_path)
    with pytest.raises(ConfigError, match="name of a region"):
        RegionConsumer(name, "t", function=lambda *_: None, sink=sink, operator="one", group_id="g")
    with pytest.raises(ConfigError, match="name of a region"):
        Candidate(name, sink, {"group_id": "g"}, {})


def test_the_longest_name_is_accepted(tmp_path: Path) -> None:
    Candidate("x" * 227, ParquetDirectory(tmp_path), {}, {})
