"""What functions return and keep that cannot be stored: refused by name, before it is visible."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kohort.errors import KohortError
from kohort.region import DeltaSink, KeyedState, ParquetDirectory
from kohort.region.errors import FunctionError, SinkError
from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.sinks.delta import DeltaPublisher
from tests.region.regions import Running, eventually, produce, running, worker

ONE = OperatorId("one", "i")
PLACE = RegionPartition("id", "t", 0)
SCHEMA = pa.schema([("account", pa.string()), ("cents", pa.int64())])
GOOD = {"account": "a", "cents": 1}


def made(sink: Any, rows: object, checkpoint: int = 1) -> str:
    """Write rows for a checkpoint, and return the reference to them."""
    writer = sink.writer(ONE, 1)
    writer.write(PLACE, rows)
    reference: str = writer.prepare(checkpoint, 1)
    return reference


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("abc", "'abc' of type str; rows are an iterable of mappings"),
        (5, "5 of type int; rows are"),
        (GOOD, "of type dict; rows are"),
        (["a"], "'a' of type str as a row"),
        ([{**GOOD, "acount": "a"}], "field 'acount', which is not a column of the sink's schema"),
        ([{**GOOD, "cents": 1.5}], "column 'cents' is int64 and cannot have 1.5"),
        ([{**GOOD, "cents": "1"}], "column 'cents' is int64: "),
        ([{**GOOD, "cents": 2**70}], "column 'cents' is int64: "),
    ],
)
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_rows_that_do_not_fit_are_refused(
    tmp_path: Path, kind: str, rows: object, told: str
) -> None:
    sink = (DeltaSink if kind == "delta" else ParquetDirectory)(tmp_path / "out", SCHEMA)
    sink.open("r", "id", 0)
    with pytest.raises((TypeError, ValueError), match="(?s)" + told.replace("(", r"\(")):
        made(sink, rows)


def test_a_field_that_a_row_lacks_is_null(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "out", SCHEMA)
    sink.open("r", "id", 0)
    sink.publish(1, {ONE: made(sink, [{"account": "a"}, {**GOOD, "cents": 2.0}])})
    cents = DeltaTable(tmp_path / "out").to_pyarrow_table()["cents"].to_pylist()
    assert cents == [None, 2]


def test_a_column_does_not_change_its_type_in_a_directory(tmp_path: Path) -> None:
    sink = ParquetDirectory(tmp_path)
    sink.open("r", "id", 0)
    sink.publish(1, {ONE: made(sink, [GOOD])})
    with pytest.raises(SinkError, match="column 'cents' is double, and was int64 before"):
        made(sink, [{**GOOD, "cents": 2.0}], 2)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ((1, 2), r"state\['k'\] is a tuple, which would be loaded as another type"),
        (Counter(a=1), r"state\['k'\] is a Counter"),
        ({"in": [{1, 2}]}, r"state\['k'\]\['in'\]\[0\] is a set"),
        (float("inf"), r"state\['k'\] is inf, which JSON does not have"),
    ],
)
def test_state_that_would_come_back_as_something_else_is_refused(value: object, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        KeyedState(k=value).to_bytes()


def ended(address: str, topic: str, tmp_path: Path, function: Any) -> BaseException:
    """Run a worker with a function until it ends, and return the error."""
    produce(address, topic, 1, 10)
    sink = DeltaSink(tmp_path / "out", SCHEMA)
    with running(worker(address, topic, sink, function=function)) as (one,):
        return error_of(one)


def error_of(one: Running) -> BaseException:
    """Wait for the end of a worker that fails."""
    eventually(lambda: one.is_over, "it ends")
    assert isinstance(one.error, KohortError)
    return one.error


def test_the_error_names_the_records_whose_rows_do_not_fit(
    address: str, topic: str, tmp_path: Path
) -> None:
    error = ended(address, topic, tmp_path, lambda *_: ["a"])
    assert isinstance(error, FunctionError)
    assert f"what the function returned for offsets 0 to 9 of {topic}-0 cannot be" in str(error)


def test_the_error_names_the_partition_whose_state_cannot_be_stored(
    address: str, topic: str, tmp_path: Path
) -> None:
    def keeping(_place: object, _records: object, state: KeyedState) -> None:
        state["sums"] = {1, 2}

    error = ended(address, topic, tmp_path, keeping)
    assert isinstance(error, FunctionError)
    assert f"the state of {topic}-0 cannot be stored: state['sums'] is a set" in str(error)


def test_a_restore_between_the_look_at_a_table_and_its_commit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(tmp_path / "out", SCHEMA)
    sink.open("r", "id", 0)
    for checkpoint in (1, 2, 3):
        sink.check(checkpoint - 1)
        sink.publish(checkpoint, {ONE: made(sink, [GOOD], checkpoint)})
    sink.check(3)
    commit = DeltaPublisher._commit

    def restored_before(*given: Any) -> None:
        monkeypatch.undo()
        DeltaTable(tmp_path / "out").restore(1)
        commit(*given)

    monkeypatch.setattr(DeltaPublisher, "_commit", restored_before)
    with pytest.raises(SinkError, match="shows checkpoint 1 at most, and the region has published"):
        sink.publish(4, {ONE: made(sink, [GOOD], 4)})
    assert DeltaTable(tmp_path / "out").to_pyarrow_table().num_rows == 1


def test_tasks_get_a_writer_before_there_is_a_table(tmp_path: Path) -> None:
    write = DeltaSink(tmp_path / "out", SCHEMA).task_writer("one", 1)
    assert write().close() == []
