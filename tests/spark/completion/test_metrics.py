"""Lag in records and seconds, and how Prometheus gets it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import StreamingQueryProgress

from kohort.spark.completion.lag import SAMPLES_MAX, LagClock, QueryStates
from kohort.spark.completion.metrics import Exporter, MetricsError
from kohort.spark.completion.progress import source_reports
from tests.spark.reports import QUERY, RUN, manifest, report, source


class TestLagClock:
    def test_nothing_to_read_is_no_age(self) -> None:
        clock = LagClock()
        assert clock.seconds_behind(50, 7) == 0
        clock.note(10, 100, 100)
        assert clock.seconds_behind(50, 100) == 0

    def test_a_record_came_between_two_looks(self) -> None:
        clock = LagClock()
        clock.note(10, 100, 100)
        clock.note(20, 200, 100)
        assert clock.seconds_behind(50, 100) == 40
        assert clock.seconds_behind(50, 150) == 35
        assert clock.seconds_behind(50, 200) == 0

    def test_a_record_that_was_there_before_the_first_look_is_at_least_as_old(self) -> None:
        clock = LagClock()
        clock.note(10, 100, 0)
        assert clock.seconds_behind(50, 5) == 40

    def test_a_topic_that_was_made_anew_starts_anew(self) -> None:
        clock = LagClock()
        clock.note(10, 100, 100)
        clock.note(20, 5, 0)
        assert clock.seconds_behind(50, 3) == 30

    def test_a_query_that_never_catches_up_costs_no_memory(self) -> None:
        clock = LagClock()
        for second in range(10 * SAMPLES_MAX):
            clock.note(second, second * 100, 0)
        assert len(clock._samples) <= SAMPLES_MAX
        assert clock.seconds_behind(10 * SAMPLES_MAX, 50_000) == pytest.approx(
            10 * SAMPLES_MAX - 500, abs=1
        )


def noted(*progresses: StreamingQueryProgress) -> QueryStates:
    states = QueryStates()
    states.started(QUERY, "north")
    for progress in progresses:
        states.note(progress, source_reports(progress))
    return states


def behind(end: int, seconds: int, batch: int, **said: Any) -> StreamingQueryProgress:
    """A batch up to offset 60 of a partition that ends at `end`."""
    latest = {"topics": {"flights": {"0": end}}, "control": "somewhere", **said}
    at = f"2026-11-23T23:20:{seconds:02}.000Z"
    return report(source(manifest(p0=[0, 60]), latest), batch=batch, timestamp=at)


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    states = noted(behind(60, 0, 7), behind(100, 10, 8, rebalanceWaitMs=1500))
    made = Exporter(states, "127.0.0.1", 0)
    yield made
    made.close()


def get(exporter: Exporter, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_prometheus_reads_the_metrics(exporter: Exporter) -> None:
    status, text = get(exporter, "/metrics")
    assert status == 200
    samples = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    query = {"query": "north"}
    member = {**query, "operator": "north"}
    partition = {**member, "topic": "flights", "partition": "0"}
    assert samples.pop("kohort_spark_seconds_behind_latest")[1] > 0
    assert samples == {
        "kohort_spark_offsets_behind_latest": (partition, 40),
        "kohort_spark_batch_duration_seconds": (query, 1.5),
        "kohort_spark_last_batch_timestamp_seconds": (query, 1795476010),
        "kohort_spark_batches_total": (query, 2),
        "kohort_spark_records_total": (query, 16),
        "kohort_spark_owned_partitions": (member, 1),
        "kohort_spark_group_epoch": (member, 3),
        "kohort_spark_rebalance_wait_seconds_total": (member, 1.5),
    }


def test_health_is_that_no_query_has_failed() -> None:
    states = noted(behind(60, 0, 7))
    exporter = Exporter(states, "127.0.0.1", 0)
    assert get(exporter, "/healthz") == (200, "ok\n")
    states.ended(RUN, QUERY, "the sink is full\n\tat java.lang")
    assert get(exporter, "/healthz") == (503, "query north has failed: the sink is full\n")
    states.started(QUERY, "north")
    assert get(exporter, "/healthz") == (200, "ok\n")
    states.ended(RUN, QUERY, None)
    assert get(exporter, "/healthz") == (200, "ok\n")
    assert states.queries() == []
    exporter.close()


def test_an_end_of_a_python_process_is_explained() -> None:
    """Java says no more than java.io.EOFException."""
    states = noted(behind(60, 0, 7))
    said = states.ended(RUN, QUERY, "java.io.EOFException\n\tat java.lang")
    assert said is not None
    assert "java.io.EOFException: a Python process" in said
    assert states.failures() == [said]
    assert states.ended("of another source", "other", "java.io.EOFException") is None


def test_another_path_says_what_there_is(exporter: Exporter) -> None:
    assert get(exporter, "/") == (404, "there are /metrics and /healthz\n")


def test_a_port_that_is_taken_is_an_error(exporter: Exporter) -> None:
    with pytest.raises(MetricsError, match=f"{exporter.port}: .*or 0 for one that is free"):
        Exporter(QueryStates(), "127.0.0.1", exporter.port)


def test_a_partition_is_behind_by_records_and_by_their_age() -> None:
    states = noted(behind(60, 0, 7), behind(100, 10, 8))
    (lag,) = states.lags(1795476010 + 5)
    assert (lag.query, lag.records, lag.seconds) == ("north", 40, 15)
