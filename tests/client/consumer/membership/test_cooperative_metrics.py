"""Metrics of a consumer (L12-L14), and their names."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kohort.broker import EmbeddedBroker
from kohort.client.consumer.membership.metrics import GroupMetrics
from kohort.client.measures import Sensor
from kohort.errors import ErrorCode
from kohort.group.events import MemberStateChanged, Ownership
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import OffsetCommitResponse

JOIN = JoinGroupRequest(
    group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=()
)
SYNC = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=())
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def joined(code: int = ErrorCode.NONE) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=1,
        protocol_name="range",
        leader="m",
        member_id="m",
        members=(),
    )


def synced(code: int = ErrorCode.NONE) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def test_averages_and_maxima_are_of_the_last_minute_and_totals_of_all_time() -> None:
    sensor = Sensor()
    assert math.isnan(sensor.average(0))
    assert math.isnan(sensor.maximum(0))
    assert sensor.rate(0) == 0
    sensor.record(10, 0)
    sensor.record(20, 1_000)
    sensor.record(60, 31_000)
    assert (sensor.average(31_000), sensor.maximum(31_000)) == (30, 60)
    assert sensor.maximum(60_000) == 60
    assert sensor.average(61_000) == 60
    assert math.isnan(sensor.maximum(91_000))
    assert (sensor.count, sensor.total) == (3, 90)


def test_a_rate_that_has_only_begun_is_no_rate_of_thousands() -> None:
    sensor = Sensor()
    sensor.record(1, 0)
    assert sensor.rate(0) == pytest.approx(1 / 30)
    assert sensor.rate(0, 3_600_000) == pytest.approx(120)
    sensor.record(1, 40_000)
    assert sensor.rate(40_000) == pytest.approx(2 / 40)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 100_000)), min_size=1))
def test_what_a_sensor_says_lies_between_what_it_was_told(
    values: list[tuple[float, int]],
) -> None:
    sensor, now = Sensor(), 0
    for value, wait in values:
        now += wait
        sensor.record(value, now)
    told = [value for value, _ in values]
    assert sensor.count == len(told)
    assert min(told) - 1e-6 <= sensor.average(now) <= sensor.maximum(now) + 1e-6
    assert sensor.maximum(now) <= max(told)


def test_l14_a_rebalance_lasts_from_the_first_join_to_the_sync() -> None:
    metrics = GroupMetrics()
    metrics.sent(JOIN, 1_000)
    metrics.answered(joined(ErrorCode.MEMBER_ID_REQUIRED), 5, 1_005)
    metrics.sent(JOIN, 1_005)
    metrics.answered(joined(), 200, 1_205)
    metrics.sent(SYNC, 1_205)
    metrics.answered(synced(), 40, 1_245)
    metrics.called(Ownership.ASSIGNED, 700, 1_945)
    found = metrics.values(3, 5_245)
    assert found["join-time-max"] == 200
    assert found["sync-time-avg"] == 40
    assert found["rebalance-latency-max"] == 245  # without the call into the application
    assert found["partition-assigned-latency-max"] == 700
    assert found["last-rebalance-seconds-ago"] == 4
    assert found["rebalance-total"] == 1
    assert found["failed-rebalance-total"] == 0
    assert found["assigned-partitions"] == 3


def test_l12_failed_rebalances_heartbeats_and_commits() -> None:
    metrics = GroupMetrics()
    metrics.sent(JOIN, 0)
    metrics.answered(joined(ErrorCode.UNKNOWN_MEMBER_ID), 10, 10)
    metrics.sent(JOIN, 10)
    metrics.unanswered(JOIN, 20)
    metrics.answered(synced(ErrorCode.REBALANCE_IN_PROGRESS), 10, 30)
    metrics.sent(BEAT, 40)
    metrics.answered(HeartbeatResponse(error_code=27), 7, 47)
    metrics.unanswered(BEAT, 48)
    metrics.answered(OffsetCommitResponse(topics=()), 9, 50)
    found = metrics.values(0, 2_040)
    assert found["failed-rebalance-total"] == 3
    assert found["rebalance-total"] == 0
    assert found["last-rebalance-seconds-ago"] == -1
    assert (found["heartbeat-total"], found["heartbeat-response-time-max"]) == (1, 7)
    assert found["last-heartbeat-seconds-ago"] == 2
    assert (found["commit-total"], found["commit-latency-avg"]) == (1, 9)


def moved(after: str) -> MemberStateChanged:
    return MemberStateChanged(group="g", now=0, member="m", generation=1, before="", after=after)


def test_l12_under_kip_848_a_reconciliation_is_a_rebalance() -> None:
    metrics = GroupMetrics()
    for after, now in (("RECONCILING", 100), ("ACKNOWLEDGING", 150), ("STABLE", 400)):
        metrics.observed(moved(after), now)
    metrics.observed(moved("STABLE"), 500)
    metrics.observed(moved("RECONCILING"), 600)
    metrics.observed(moved("FENCED"), 700)
    found = metrics.values(0, 1_400)
    assert (found["rebalance-total"], found["rebalance-latency-max"]) == (1, 300)
    assert found["failed-rebalance-total"] == 1
    assert found["last-rebalance-seconds-ago"] == 1


KAFKA = {
    f"{name}-{end}"
    for name, ends in {
        "join-time": "avg max",
        "join": "rate total",
        "sync-time": "avg max",
        "sync": "rate total",
        "rebalance-latency": "avg max total",
        "rebalance": "total rate-per-hour",
        "failed-rebalance": "total rate-per-hour",
        "last-rebalance": "seconds-ago",
        "heartbeat": "rate total response-time-max",
        "last-heartbeat": "seconds-ago",
        "commit-latency": "avg max",
        "commit": "rate total",
        "assigned": "partitions",
        "partition-revoked-latency": "avg max",
        "partition-assigned-latency": "avg max",
        "partition-lost-latency": "avg max",
    }.items()
    for end in ends.split()
}


def test_l12_l13_the_names_are_those_of_kafka_and_contain_kafka_pythons(tmp_path: Path) -> None:
    ours = set(GroupMetrics().values(0, 0))
    assert ours == KAFKA
    with warnings.catch_warnings(), EmbeddedBroker(tmp_path) as broker:
        warnings.simplefilter("ignore")  # kafka-python reads its schemas in a deprecated way
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
        theirs = set(consumer.metrics()["consumer-coordinator-metrics"])
        consumer.close()
    assert theirs <= ours
