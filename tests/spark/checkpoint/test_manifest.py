from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.checkpoint.manifest import Manifest, ManifestError, trim
from kohort.types import TopicPartition
from kohort.values import replace

PARTITIONS = st.builds(
    TopicPartition, st.sampled_from(["a", "b", "epoch", "ü.x"]), st.integers(0, 20)
)
RANGES = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda r: (min(r), max(r)))
MANIFESTS = st.builds(
    Manifest,
    st.integers(-1, 9),
    st.text(max_size=8),
    st.dictionaries(PARTITIONS, RANGES),
    firsts=st.dictionaries(PARTITIONS, st.integers(0, 1000)),
)
COMMITTED = st.dictionaries(PARTITIONS, st.integers(0, 1200))


@given(MANIFESTS)
def test_a_manifest_survives_sparks_offset_log(manifest: Manifest) -> None:
    text = json.dumps(manifest.to_json())
    assert Manifest.from_json(json.loads(text)) == manifest


@given(MANIFESTS, st.randoms())
def test_equal_manifests_have_equal_text(manifest: Manifest, random: object) -> None:
    pairs = list(manifest.ranges.items())
    random.shuffle(pairs)  # type: ignore[attr-defined]  # hypothesis types randoms() loosely
    shuffled = replace(manifest, ranges=dict(pairs))
    assert json.dumps(shuffled.to_json()) == json.dumps(manifest.to_json())


@given(MANIFESTS)
def test_what_spark_hands_back_has_the_same_text(manifest: Manifest) -> None:
    text = json.dumps(manifest.to_json())
    assert json.dumps(json.loads(text)) == text


@pytest.mark.parametrize("foreign", [{"flights": {"0": 23}}, {}, {"topics": [], "epoch": 1}])
def test_the_offset_of_another_source_is_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(ManifestError, match="new checkpointLocation"):
        Manifest.from_json(foreign)


@given(MANIFESTS, COMMITTED)
def test_trimming_leaves_exactly_what_is_not_committed(
    manifest: Manifest, committed: dict[TopicPartition, int]
) -> None:
    left = {
        (partition, offset)
        for partition, (start, end) in trim(manifest.ranges, committed).items()
        for offset in range(start, end)
    }
    assert left == {
        (partition, offset)
        for partition, (start, end) in manifest.ranges.items()
        for offset in range(start, end)
        if offset >= committed.get(partition, 0)
    }
