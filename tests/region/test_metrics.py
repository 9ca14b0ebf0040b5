"""What a process of a region counts, and how Prometheus gets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from immutables import Map
from prometheus_client.parser import text_string_to_metric_families

from kohort.region import AsyncRegionConsumer, ParquetDirectory, RegionConsumer
from kohort.region.machines.records import OperatorId
from kohort.region.machines.state import OpenDrain, Operator, RegionState
from kohort.region.metrics import (
    AVERAGED,
    ControllerMetrics,
    OperatorMetrics,
    RegionMetrics,
    measured,
)
from kohort.region.prometheus import MetricsError, serve_metrics
from kohort.values import replace
from tests.region.harness import P, Q

ONE = OperatorId("one", "1")


class Worker:
    region, operator = "prices", "one"

    def __init__(self) -> None:
        self.counted = OperatorMetrics()
        self.seen = ControllerMetrics()

    def metrics(self) -> RegionMetrics:
        return measured(self.counted, self.seen, 12)


def drained(state: RegionState, checkpoint: int) -> RegionState:
    opened: RegionState = replace(
        state, checkpoint=checkpoint, drain=OpenDrain(checkpoint, Map({ONE: frozenset({P})}))
    )
    return opened


@pytest.fixture
def state() -> RegionState:
    one = Operator(
        id=ONE, host="h", process="1", client_id="c", registered_at=1, attempt=1,
        owned=frozenset({P}),
    )  # fmt: skip
    return RegionState(operators=Map({"one": one}))


def test_a41_a52_an_operator_counts_under_the_names_of_the_original() -> None:
    worker = Worker()
    worker.counted.own([P, Q])
    for began, ended in ((0, 70), (100, 130)):
        worker.counted.begin_drain(began)
        worker.counted.end_drain(ended)
    worker.counted.end_drain(999)  # of no drain
    found = worker.metrics()
    assert (found["nPartitionsAssigned"], found["nConsumedTopics"]) == (2, 1)
    assert (found["drainTimeMillis"], found["drainTimeMillisMax"]) == (30, 70)
    assert found["nPendingMessages"] == 12


async def idle(*_: object) -> None:
    """A function that makes nothing."""


@pytest.mark.parametrize("kind", [RegionConsumer, AsyncRegionConsumer])
def test_a_worker_that_has_not_begun_has_counted_nothing(
    kind: type[RegionConsumer | AsyncRegionConsumer], tmp_path: Path
) -> None:
    sink = ParquetDirectory(tmp_path)
    made = kind("prices", "t", function=idle, sink=sink, operator="one", group_id="g")
    found = dict(made.metrics())
    assert (found.pop("state"), set(found.values())) == ("STARTED", {0})
    assert (made.region, made.operator) == ("prices", "one")


def test_drains_are_timed_unless_a_reset_burns_them(state: RegionState) -> None:
    metrics = ControllerMetrics()
    metrics.folded(drained(state, 1), 1_000)
    metrics.folded(replace(state, checkpoint=1, completed=1), 1_300)
    metrics.folded(drained(replace(state, completed=1), 2), 2_000)
    metrics.folded(replace(state, checkpoint=2, completed=1), 2_500)  # burnt
    metrics.folded(drained(replace(state, completed=1), 3), 3_000)
    metrics.folded(replace(state, checkpoint=3, completed=3), 3_100)
    assert (metrics.average_drain_ms, metrics.completed) == (200, 3)


def test_resets_are_timed_until_all_have_gone_back(state: RegionState) -> None:
    metrics = ControllerMetrics()
    metrics.folded(state, 1_000)
    assert (metrics.state, metrics.average_reset_ms) == ("PROCESSING", 0)
    resetting = replace(state, attempt=2, resets=1)
    metrics.folded(resetting, 2_000)
    assert (metrics.state, metrics.attempt, metrics.resets) == ("RESETTING", 2, 1)
    back = replace(resetting.operators["one"], attempt=2)
    metrics.folded(replace(resetting, operators=Map({"one": back})), 2_800)
    assert (metrics.state, metrics.average_reset_ms) == ("PROCESSING", 800)


def test_averages_are_of_the_last_ten(state: RegionState) -> None:
    metrics = ControllerMetrics()
    for number in range(1, 3 * AVERAGED):
        before = replace(state, completed=number - 1)
        metrics.folded(drained(before, number), 0)
        metrics.folded(replace(state, checkpoint=number, completed=number), number)
    assert metrics.average_drain_ms == sum(range(2 * AVERAGED, 3 * AVERAGED)) / AVERAGED


@pytest.fixture
def served() -> Iterator[tuple[Worker, int]]:
    worker = Worker()
    server = serve_metrics(worker, port=0)
    yield worker, server.server_port
    server.shutdown()
    server.server_close()


def test_prometheus_gets_them_over_http(served: tuple[Worker, int], state: RegionState) -> None:
    worker, port = served
    worker.counted.own([P, Q])
    worker.counted.begin_drain(0)
    worker.counted.end_drain(1_500)
    worker.counted.rebalances = 3
    worker.seen.folded(state, 1)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert {s.labels["region"] for s in samples} == {"prices"}
    values = {
        s.name: s.value for s in samples if s.labels.get("phase", "PROCESSING") == "PROCESSING"
    }
    assert values["kohort_region_partitions_assigned"] == 2
    assert values["kohort_region_partition_rebalances_total"] == 3
    assert values["kohort_region_operator_drain_seconds"] == 1.5
    assert values["kohort_region_phase"] == 1
    assert sum(s.value for s in samples if s.name == "kohort_region_phase") == 1


def test_a_port_that_is_taken_is_told(served: tuple[Worker, int]) -> None:
    worker, port = served
    with pytest.raises(MetricsError, match=f"127.0.0.1:{port}"):
        serve_metrics(worker, port=port)
