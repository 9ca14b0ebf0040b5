"""Sinks of regions: what they refuse, and that publishing twice shows nothing twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kohort.client import AdminClient, NewTopic
from kohort.delta.positions import DeltaAppendError
from kohort.region import (
    CallableSink,
    DeltaSink,
    OperatorId,
    ParquetDirectory,
    RegionPartition,
    SinkError,
    read_directory,
)
from kohort.region.sinks.delta import DeltaPublisher
from tests.region.regions import SCHEMA, eventually, name_of_topic, produce, running, worker

PLACE = RegionPartition("t", "an-id", 0)
ONE, TWO = OperatorId("one", "a"), OperatorId("two", "b")


def row(number: int) -> dict[str, int]:
    return {"partition": 0, "offset": number, "value": number, "sum": number}


@pytest.fixture(params=["parquet", "delta"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetDirectory | DeltaSink:
    made = ParquetDirectory(tmp_path) if request.param == "parquet" else DeltaSink(tmp_path, SCHEMA)
    made.open("r", "id-1", 0)
    return made


def shown(sink: ParquetDirectory | DeltaSink, path: Path) -> list[int]:
    """Return the offsets that a reader sees."""
    if isinstance(sink, ParquetDirectory):
        table = read_directory(path)
    else:
        table = DeltaTable(path).to_pyarrow_table()
    return sorted(table.column("offset").to_pylist()) if table.num_rows else []


def test_a_cut_of_two_operators_is_visible_at_once_and_once(
    sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    first, second = sink.writer(ONE, 1), sink.writer(TWO, 1)
    first.write(PLACE, [row(1), row(2)])
    second.write(PLACE, pa.RecordBatch.from_pylist([row(3)], schema=SCHEMA))
    outputs = {ONE: first.prepare(1, 1), TWO: second.prepare(1, 1)}
    assert shown(sink, tmp_path) == []
    for _ in range(2):
        sink.publish(1, outputs)
        assert shown(sink, tmp_path) == [1, 2, 3]


def test_what_is_aborted_or_empty_is_never_visible(
    sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [row(1)])
    writer.abort()
    assert writer.prepare(1, 1) == ""
    writer.write(PLACE, [row(2)])
    sink.publish(2, {ONE: writer.prepare(2, 1)})
    assert shown(sink, tmp_path) == [2]


def test_another_region_of_the_same_name_is_refused(
    sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [row(1)])
    sink.publish(1, {ONE: writer.prepare(1, 1)})
    sink.open("r", "id-1", 0)
    with pytest.raises(SinkError, match="another name, with an output of its own"):
        sink.open("r", "id-2", 0)


def test_a_file_that_somebody_removed_stops_the_checkpoint_by_name(
    sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [row(1)])
    output = writer.prepare(1, 1)
    (data,) = tmp_path.rglob("*.parquet")
    kept = data.read_bytes()
    data.unlink()
    with pytest.raises(SinkError, match="belongs to checkpoint 1 and is missing"):
        sink.publish(1, {ONE: output})
    data.write_bytes(kept)
    sink.publish(1, {ONE: output})
    assert shown(sink, tmp_path) == [1]


def test_a_list_of_files_that_was_changed_is_refused(
    sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [row(1)])
    output = writer.prepare(1, 1)
    place = tmp_path / output.rsplit("#", 1)[0]
    place.write_text(json.dumps([]))
    with pytest.raises(SinkError, match="was changed"):
        sink.publish(1, {ONE: output})


def test_others_may_write_to_the_table(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, SCHEMA)
    sink.open("r", "id-1", 0)
    for number in range(1, 4):
        write_deltalake(tmp_path, pa.Table.from_pylist([row(-number)], SCHEMA), mode="append")
        writer = sink.writer(ONE, 1)
        writer.write(PLACE, [row(number)])
        sink.publish(number, {ONE: writer.prepare(number, 1)})
    assert shown(sink, tmp_path) == [-3, -2, -1, 1, 2, 3]


def test_a_table_that_does_not_fit_is_refused_before_the_first_record(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"offset": ["text"]}))
    with pytest.raises(DeltaAppendError, match="column 'offset' is string in the table"):
        DeltaSink(tmp_path, SCHEMA).open("r", "id-1", 0)


def test_a_table_whose_log_is_gone_is_told(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, SCHEMA)
    sink.open("r", "id-1", 0)
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [row(1)])
    output = writer.prepare(1, 1)
    for each in (tmp_path / "_delta_log").iterdir():
        each.unlink()
    (tmp_path / "_delta_log").rmdir()
    with pytest.raises(SinkError, match="no longer has a transaction log"):
        sink.publish(1, {ONE: output})


def test_a_region_writes_a_delta_table(address: str, tmp_path: Path) -> None:
    topic = name_of_topic()
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, 4)])
    produce(address, topic, 4, 1_000)
    sinks = [DeltaSink(tmp_path, SCHEMA) for _ in range(2)]
    with running(*(worker(address, topic, each, f"w{n}") for n, each in enumerate(sinks))) as both:
        eventually(
            lambda: (tmp_path / "_delta_log").is_dir() and len(shown(sinks[0], tmp_path)) == 1_000,
            "all is in the table",
        )
    assert [each.error for each in both] == [None, None]
    found = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert len({(each["partition"], each["offset"]) for each in found}) == 1_000


def test_a_listing_that_misses_a_manifest_shows_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories are listed in no order, and manifests appear meanwhile."""
    sink = ParquetDirectory(tmp_path)
    sink.open("r", "id-1", 0)
    one = sink.writer(ONE, 1)
    for number in (1, 2, 3):
        one.write(PLACE, [row(number)])
        sink.publish(number, {ONE: one.prepare(number, 1)})
    first, _, third = every = sorted((tmp_path / "_region").glob("[0-9]*.json"))
    listings = iter([[first], [first, third], [third], every])
    monkeypatch.setattr(sink, "_listed", lambda: next(listings))
    assert [each["checkpoint"] for each in sink.manifests()] == [1]
    assert [each["checkpoint"] for each in sink.manifests()] == [1, 2, 3]


def two_checkpoints(path: Path, kind: str) -> ParquetDirectory | DeltaSink:
    """Return a sink that shows checkpoints 2 and 4."""
    made = ParquetDirectory(path) if kind == "parquet" else DeltaSink(path, SCHEMA)
    made.open("r", "id-1", 0)
    writer = made.writer(ONE, 1)
    for number in (2, 4):
        writer.write(PLACE, [row(number)])
        made.publish(number, {ONE: writer.prepare(number, 1)})
    made.check(4)
    return made


def delete(path: Path) -> None:
    shutil.rmtree(path)


def delete_newest_manifest(path: Path) -> None:
    max((path / "_region").glob("[0-9]*.json")).unlink()


def restore(path: Path) -> None:
    DeltaTable(path).restore(1)


def delete_newest_commit(path: Path) -> None:
    max((path / "_delta_log").glob("*.json")).unlink()


BACK = [
    ("parquet", delete, "no checkpoint of this region"),
    ("parquet", delete_newest_manifest, "checkpoint 2 at most"),
    ("delta", delete, "no checkpoint of this region"),
    ("delta", restore, "checkpoint 2 at most"),
    ("delta", delete_newest_commit, "checkpoint 2 at most"),
]


@pytest.mark.parametrize(("kind", "change", "says"), BACK)
def test_output_that_went_back_is_refused_before_anything_is_written(
    kind: str, change: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    running_one = two_checkpoints(path, kind)
    change(path)
    one_more = ParquetDirectory(path) if kind == "parquet" else DeltaSink(path, SCHEMA)
    publishers = [running_one, one_more]
    if kind == "delta":
        publishers.append(DeltaPublisher(path))  # type: ignore[arg-type]  # writes none, checks alike
    for each in publishers:
        with pytest.raises(SinkError, match=f"shows {says}, and the region has .* checkpoint 4"):
            each.open("r", "id-1", 4)
    assert path.exists() == (change is not delete)


def test_a_table_that_was_restored_to_its_newest_rows_again_is_accepted(tmp_path: Path) -> None:
    sink = two_checkpoints(tmp_path, "delta")
    DeltaTable(tmp_path).restore(1)
    with pytest.raises(SinkError, match="checkpoint 2 at most"):
        sink.check(4)
    DeltaTable(tmp_path).restore(2)
    sink.check(4)
    assert shown(sink, tmp_path) == [2, 4]


def test_a_restore_after_the_look_is_noticed_before_the_commit(tmp_path: Path) -> None:
    sink = two_checkpoints(tmp_path, "delta")
    assert isinstance(sink, DeltaSink)
    sink.check(4)
    DeltaTable(tmp_path).restore(1)
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, [row(6)])
    with pytest.raises(SinkError, match="checkpoint 2 at most"):
        sink.publish(6, {ONE: writer.prepare(6, 1)})


def test_functions_can_say_what_is_visible() -> None:
    seen: list[int] = []
    sink = CallableSink(
        lambda *_: "ref", lambda n, _: seen.append(n), shown=lambda: max(seen, default=0)
    )
    sink.open("r", "id-1", 0)
    sink.publish(3, {ONE: "ref"})
    sink.check(3)
    seen.clear()
    with pytest.raises(SinkError, match="shows no checkpoint of this region"):
        sink.open("r", "id-1", 3)


@pytest.mark.parametrize(("kind", "change", "says"), BACK[:-1])
def test_a_region_does_not_go_on_behind_output_that_went_back(
    kind: str, change: Callable[[Path], None], says: str, address: str, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "out"

    def sink() -> ParquetDirectory | DeltaSink:
        return ParquetDirectory(path) if kind == "parquet" else DeltaSink(path, SCHEMA)

    def has(count: int) -> bool:
        is_there = kind == "parquet" or (path / "_delta_log").is_dir()
        return is_there and len(shown(sink(), path)) == count

    with running(worker(address, topic, sink())):
        for count in (400, 800):
            produce(address, topic, 4, 400, first=count - 400)
            eventually(partial(has, count), f"{count} rows are visible")
    change(path)
    produce(address, topic, 4, 400, first=800)
    with running(worker(address, topic, sink())) as (one,):
        one.join()
    assert isinstance(one.error, SinkError)
    assert "deleted or set back" in str(one.error)
    assert path.exists() == (change is not delete)
