"""What Spark's progress reports say of a query's kohort sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kohort.spark.completion.progress import progress, source_reports
from kohort.types import TopicPartition
from tests.spark.reports import manifest, report, source

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

END = manifest(p0=[0, 5], p1=[7, 7])


class Query:
    """A query whose last report is this."""

    def __init__(self, last: StreamingQueryProgress | None) -> None:
        self.lastProgress = last


def shown(last: StreamingQueryProgress | None) -> list[object]:
    return list(progress(cast("StreamingQuery", Query(last))))


def test_how_far_a_query_is_has_the_names_of_sparks_own_source() -> None:
    said = {
        "topics": {"flights": {"0": 25, "1": 9}},
        "control": "somewhere",
        "member": "north-1",
        "epoch": 4,
        "rebalanceWaitMs": 120,
    }
    assert shown(report(source(END, said))) == [
        {
            "minOffsetsBehindLatest": 2,
            "maxOffsetsBehindLatest": 20,
            "avgOffsetsBehindLatest": 11.0,
            "offsetsBehindLatest": {"flights": {0: 20, 1: 2}},
            "batchId": 7,
            "operator": "north",
            "memberId": "north-1",
            "epoch": 4,
            "owned": {"flights": [0, 1]},
            "rebalanceWaitMs": 120,
        }
    ]


def test_nothing_is_known_before_the_first_batch_has_ended() -> None:
    assert shown(None) == []


def test_a_repeated_batch_says_what_it_read_and_not_how_far_behind_that_is() -> None:
    (found,) = progress(cast("StreamingQuery", Query(report(source(END, None)))))
    assert found["maxOffsetsBehindLatest"] is None
    assert found["offsetsBehindLatest"] == {}
    assert found["owned"] == {"flights": [0, 1]}
    assert found["epoch"] == 3


def test_sources_of_others_are_left_out() -> None:
    offsets = {"flights": {"0": 23}}
    other = {**source(offsets, offsets), "endOffset": '"2026-11-23"'}
    ours = source(END, {"topics": {"flights": {"0": 5}}})
    (found,) = source_reports(report(source(offsets, offsets), other, ours))
    assert found.lags == {TopicPartition("flights", 0): 0}


def test_a_partition_that_came_after_the_batch_has_no_lag_yet() -> None:
    (found,) = source_reports(report(source(END, {"topics": {"flights": {"2": 5}}})))
    assert found.lags == {}
