"""What no reader could read is refused where it enters, and never written again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from immutables import Map

from kohort.errors import ConfigError
from kohort.region import DeltaSink, OperatorId, ParquetDirectory, RegionPartition
from kohort.region.candidate import Candidate
from kohort.region.errors import RegionRecordError, SinkError
from kohort.region.log.control import ControlLog
from kohort.region.machines.coding import decode, encode
from kohort.region.machines.records import (
    Ask,
    Contribution,
    Evict,
    Exhausted,
    RegionRecord,
    Registered,
    Reset,
    Unhealthy,
)
from kohort.region.sinks.callable import CallableSink
from kohort.region.sinks.sink import SharedSink
from kohort.region.work import Cut, Load, Work
from kohort.spark.options.checks import check_stream_options
from kohort.spark.options.source import parse_options
from kohort.spark.options.values import OptionError
from tests.region.regions import worker

PARTITION = RegionPartition("t", "an-id", 0)
LONG = "x" * 5_000 + "\udcff"


@pytest.mark.parametrize("output", [None, "x" * 65_537, b"a", "\udcff"])
def test_a_reference_that_no_record_takes_is_refused(output: Any) -> None:
    sink = CallableSink(lambda *_: output, lambda *_: None)
    work = Work(lambda _: None, lambda attempt: sink.writer(OperatorId("one", "a"), attempt))
    work.obey(Load(PARTITION, 1, 0, b""))
    work.write(PARTITION, ["a row"])
    with pytest.raises(SinkError, match="as its reference to the output of checkpoint 3, which is"):
        work.obey(Cut(3, 1))


@pytest.mark.parametrize(
    ("operator", "is_taken"),
    [("n" * 200, True), ("日" * 200, True), ("n" * 201, False), ("𝄞" * 151, False)],
)
def test_a_name_is_taken_only_if_all_records_can_have_it(operator: str, is_taken: bool) -> None:
    sink = CallableSink(lambda *_: "", lambda *_: None)
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafka.group.id": "g",
        "kafka.client.id": operator,
        "consistentRegion": "r",
    }
    if is_taken:
        worker("127.0.0.1:1", "t", sink, operator)
        check_stream_options(parse_options(given))
        who = OperatorId(operator, "i" * 32)
        record = Registered(who, 0, "host", "1", f"{operator}.{'i' * 12}")
        assert decode(*encode(record, "u" * 32)) == record
    else:
        with pytest.raises(ConfigError, match="the operator's name has"):
            worker("127.0.0.1:1", "t", sink, operator)
        with pytest.raises(OptionError, match="the operator's name has"):
            check_stream_options(parse_options(given))


def test_a_group_id_that_no_record_takes_is_refused() -> None:
    sink = CallableSink(lambda *_: "", lambda *_: None)
    with pytest.raises(ConfigError, match="the group id has 250 characters"):
        worker("127.0.0.1:1", "t", sink, group_id="g" * 250)
    with pytest.raises(ConfigError, match="the group id has 250 characters"):
        Candidate("r", sink, {"group_id": "g" * 250}, {})


@pytest.mark.parametrize(
    "record",
    [
        Unhealthy(OperatorId("a", "1"), 1, LONG),
        Ask("somebody", "reset", 1, 1, why=LONG),
        Reset(1, "c", 2, False, LONG),
        Exhausted(1, "c", 2, LONG),
        Evict(1, "c", OperatorId("a", "1"), LONG),
    ],
)
def test_a_long_reason_is_cut(record: RegionRecord) -> None:
    found: Any = decode(*encode(record, "1"))
    assert found.why == "x" * 4_000


def test_a_reason_that_is_no_text_is_made_one() -> None:
    found: Any = decode(*encode(Unhealthy(OperatorId("a", "1"), 1, "no \udcff"), "1"))
    assert found.why == "no ?"


def test_no_record_is_appended_that_cannot_be_read() -> None:
    """Its writer would wait for it, and say it again without end."""
    control = ControlLog("r", {})
    wrong = Contribution(OperatorId("a", "1"), 1, 1, 1, Map(), Map(), frozenset(), "x" * 70_000)
    with pytest.raises(RegionRecordError, match="is not written, because no reader could read it"):
        asyncio.run(control.append([Ask("somebody", "drain", 1, 1), wrong]))


SCHEMA = pa.schema([("a", pa.int64())])


@pytest.mark.parametrize("name", ["team/north", "../../north", "n" * 200, "日" * 200, "a b#c%d"])
@pytest.mark.parametrize("make", [ParquetDirectory, lambda path: DeltaSink(path, SCHEMA)])
def test_any_name_of_an_operator_can_be_in_file_names(
    make: Callable[[Path], SharedSink], name: str, tmp_path: Path
) -> None:
    sink, who = make(tmp_path / "out"), OperatorId(name, "i")
    sink.open("r", "an-id", 0)
    writer, task = sink.writer(who, 1), sink.task_writer(name, 1)()
    writer.write(PARTITION, [{"a": 1}])
    task.write(pa.table({"a": [2]}))
    sink.publish(1, {who: writer.prepare(1, 1)})
    sink.publish(2, {who: sink.hand_over(who, 2, 1, task.close())})
    sink.check(2)
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
