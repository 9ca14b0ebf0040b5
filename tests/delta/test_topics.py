"""A topic that is deleted and recreated begins at offset 0, and none of its records is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kohort.delta.append import TableAppend
from kohort.delta.parquet import ArrowTask
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import TaskReport
from kohort.spark.checkpoint.batch_ids import TopicIdError, ids_of
from tests.delta.rows import IDS, SCHEMA, ListRows, contents, span

ANEW = {"t": "5c1b7e1e-0000-4000-8000-000000000002"}


def files(path: Path) -> set[str]:
    return {file.name for file in path.glob("*.parquet")}


def named(path: Path) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(path).file_uris()}


@pytest.mark.parametrize("same_process", [True, False])
def test_a_topic_made_anew_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, same_process: bool
) -> None:
    append = TableAppend(tmp_path, "g")
    append.append(ListRows([span(0, 0, 200)]), SCHEMA, 0, IDS)
    if not same_process:
        append = TableAppend(tmp_path, "g")
    assert append.append(ListRows([span(0, 0, 50)]), SCHEMA, 1, ANEW).rows_written == 50
    assert "t-0: the topic was deleted and recreated" in caplog.text
    assert append.append(ListRows([span(0, 0, 60)]), SCHEMA, 2, ANEW).rows_written == 10
    # What was read from the former topic before stays known.
    assert append.append(ListRows([span(0, 150, 200)]), SCHEMA, 3, IDS).rows_dropped == 50
    assert contents(tmp_path) == Counter([*span(0, 0, 200), *span(0, 0, 60)])


def test_a_position_without_an_id_is_taken_over(tmp_path: Path) -> None:
    """A table that was written before positions had ids."""
    TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 30)]), SCHEMA, 0)
    append = TableAppend(tmp_path, "g")
    assert append.append(ListRows([span(0, 20, 40)]), SCHEMA, 1, IDS).rows_written == 10
    assert append.append(ListRows([span(0, 0, 5)]), SCHEMA, 2, ANEW).rows_written == 5
    assert contents(tmp_path) == Counter([*span(0, 0, 40), *span(0, 0, 5)])


@pytest.mark.parametrize("ids", [{}, IDS])
def test_without_an_id_a_batch_that_begins_again_is_refused(
    tmp_path: Path, ids: dict[str, str]
) -> None:
    TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 200)]), SCHEMA, 0)
    with pytest.raises(DeltaAppendError, match=r"t-0.*0 to 49.*below 200.*deleted and recreated"):
        TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 50)]), SCHEMA, 1, ids)
    assert files(tmp_path) == named(tmp_path)
    same = TableAppend(tmp_path, "g", positions_without_id="same")
    assert same.append(ListRows([span(0, 0, 50)]), SCHEMA, 1, ids).rows_dropped == 50


def test_a_position_without_an_id_may_be_that_of_a_former_topic(tmp_path: Path) -> None:
    TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 200)]), SCHEMA, 0)
    other = TableAppend(tmp_path, "g", positions_without_id="other")
    with pytest.raises(DeltaAppendError, match="needs topic ids"):
        other.append(ListRows([span(0, 0, 50)]), SCHEMA, 1)
    assert other.append(ListRows([span(0, 0, 50)]), SCHEMA, 1, ANEW).rows_written == 50
    # The option may stay: positions have ids now.
    assert other.append(ListRows([span(0, 0, 50)]), SCHEMA, 1, ANEW).rows_dropped == 50


def test_without_an_id_what_is_dropped_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append = TableAppend(tmp_path, "g")
    append.append(ListRows([span(0, 0, 30)]), SCHEMA, 0)
    assert append.append(ListRows([span(0, 0, 30)]), SCHEMA, 0).rows_dropped == 30
    assert "from offset 0 to 29 were dropped" in caplog.text
    assert caplog.text.count("topic_ids") == 1


def test_positions_outlive_a_restore_and_another_group_id_writes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append = TableAppend(tmp_path, "g")
    append.append(ListRows([span(0, 0, 10)]), SCHEMA, 0, IDS)
    version = DeltaTable(tmp_path).version()
    append.append(ListRows([span(0, 10, 30)]), SCHEMA, 1, IDS)
    DeltaTable(tmp_path).restore(version)
    again = ListRows([span(0, 10, 30)])
    assert TableAppend(tmp_path, "g").append(again, SCHEMA, 2, IDS).rows_dropped == 20
    assert "from offset 10 to 29 were left out" in caplog.text
    assert "RESTORE keeps the positions" in caplog.text
    assert TableAppend(tmp_path, "g2").append(again, SCHEMA, 2, IDS).rows_written == 20
    assert contents(tmp_path) == Counter(span(0, 0, 30))


def test_a_batch_without_ids_is_refused_where_positions_have_them(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    append.append(ListRows([span(0, 0, 30)]), SCHEMA, 0, IDS)
    with pytest.raises(DeltaAppendError, match="have topic ids and this batch has none"):
        append.append(ListRows([span(0, 30, 40)]), SCHEMA, 1)
    assert files(tmp_path) == named(tmp_path)


def test_ids_that_are_asked_for_must_stay_while_the_batch_is_read(tmp_path: Path) -> None:
    class Remade:
        """Rows during whose reading the topic is recreated."""

        def __init__(self) -> None:
            self.ids = IDS

        def write(self, task: ArrowTask) -> Iterable[TaskReport]:
            yield from ListRows([span(0, 0, 10)]).write(task)
            self.ids = ANEW

    rows = Remade()
    append = TableAppend(tmp_path, "g")
    with pytest.raises(DeltaAppendError, match="recreated while the batch was read"):
        append.append(rows, SCHEMA, 0, lambda: rows.ids)
    assert files(tmp_path) == set()
    assert append.append(ListRows([span(0, 0, 4)]), SCHEMA, 0, lambda: ANEW).rows_written == 4


def test_only_offsets_of_this_source_name_topics() -> None:
    manifest = {"operator": "north", "ids": IDS, "topics": {"t": {"0": [0, 3]}}, "epoch": 1}
    former = {"operator": "north", "topics": {"t": {"0": [0, 3]}}, "epoch": 1}
    foreign = {"t": {"0": 23}}
    offsets = [json.dumps(offset) for offset in (manifest, former, foreign)]
    assert ids_of(offsets) == IDS
    assert ids_of(['{"ids": {"t": "x"}}', "7", "[]"]) == {}
    with pytest.raises(TopicIdError, match="two topics named 't'"):
        ids_of([*offsets, json.dumps({**manifest, "ids": ANEW})])
