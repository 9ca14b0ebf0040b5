"""Workers of one region that would put their output into different places."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kohort.region import DeltaSink, DifferentRegionError, ParquetDirectory
from kohort.region.candidate import Candidate
from kohort.region.machines.fold import fold_in
from kohort.region.machines.records import RegionSettled
from kohort.region.sinks.sink import identity_of
from kohort.values import replace
from tests.region.machines.test_fold import SETTINGS, TWO, folded
from tests.region.regions import SCHEMA, Running, eventually, produce, running, visible, worker

PARTITIONS = 4
SINKS: dict[str, Any] = {"parquet": ParquetDirectory, "delta": lambda at: DeltaSink(at, SCHEMA)}


@pytest.mark.parametrize("kind", SINKS)
def test_a_worker_with_another_place_is_refused_by_name(
    address: str, topic: str, tmp_path: Path, kind: str
) -> None:
    """Else it would hand over files that the controller looks for in its own place, for ever."""
    make, one_at, other_at = SINKS[kind], tmp_path / "one", tmp_path / "other"
    with running(worker(address, topic, make(one_at))) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
        refused = Running(worker(address, topic, make(other_at), "two"))
        refused.join()
        assert one.error is None
    assert isinstance(refused.error, DifferentRegionError)
    assert f"{other_at} here and " in str(refused.error)
    assert f"{one_at} in the region" in str(refused.error)


def test_a_place_may_have_several_names(address: str, topic: str, tmp_path: Path) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    out.mkdir()
    link.symlink_to(out)
    produce(address, topic, PARTITIONS, 100)
    first = worker(address, topic, ParquetDirectory(out), "one")
    second = worker(address, topic, ParquetDirectory(link), "two")
    with running(first, second) as (one, two):
        eventually(lambda: visible(out) == 100, "all is visible")
    assert (one.error, two.error) == (None, None)


def test_a_table_is_known_by_its_id(tmp_path: Path) -> None:
    known = []
    for each in (tmp_path / "t", f"file://{tmp_path}/t", tmp_path / "other"):
        sink = DeltaSink(each, SCHEMA)
        sink.open("r", "id-1", 0)
        known.append(identity_of(sink).split(" ")[0])
    assert known[0] == known[1] != known[2]


def test_a_place_becomes_known_later_and_stays() -> None:
    """A controller alone makes a region before there is a table, and functions have no place."""
    state = folded((*TWO, RegionSettled("x", replace(SETTINGS, sink="id-1 /a"))))
    assert state.settings == replace(SETTINGS, sink="id-1 /a")
    for said in ("", "id-1 /b"):
        again = folded([RegionSettled("x", replace(SETTINGS, sink=said))], state)
        assert again.settings == state.settings
    _, (fact,) = fold_in(state, state.offset, RegionSettled("x", replace(SETTINGS, sink="id-2 /a")))
    assert fact.is_refused


def test_a_controller_alone_with_another_place_is_refused(
    address: str, topic: str, tmp_path: Path
) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path / "one"))) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
        other = ParquetDirectory(tmp_path / "other")
        candidate = Candidate(f"region-{topic}", other, {}, {"bootstrap_servers": address})
        with pytest.raises(DifferentRegionError, match=r"sink is .*/other here and"):
            asyncio.run(candidate.run())
