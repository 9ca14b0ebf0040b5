"""Two sources of one application in one group, which read to the present end."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kohort.spark.source import deadlock, driver
from kohort.spark.source.deadlock import DeadlockCheck
from kohort.spark.source.query_state import GroupInUseError
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, once, produce

# In the other protocols a member is told at once that it has nothing yet, and nobody waits.
pytestmark = pytest.mark.parametrize("start", ["eager"], indirect=True)

COUNTS = dict.fromkeys(range(4), 10)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlock, "UNASKED_MAX_S", 0.3)
    monkeypatch.setattr(driver, "LOOK_S", 0.05)
    monkeypatch.setattr(driver, "FIRST_ASSIGNMENT_WAIT_S", 0.1)


def two(start: Start) -> tuple[PlayedQuery, PlayedQuery]:
    north, south = start(), start(kafka__client__id="south")
    for query in (north, south):
        query.reader.prepareForTriggerAvailableNow()
    return north, south


def test_sources_of_one_query_that_wait_for_each_other_are_refused(
    bootstrap: str, topic: str, start: Start
) -> None:
    produce(bootstrap, topic, COUNTS)
    north, south = two(start)
    end = north.reader.latestOffset(north.reader.initialOffset(), ReadAllAvailable())
    assert end["topics"]
    with pytest.raises(GroupInUseError, match=r"sources of one query.*kafka.group.id of its own"):
        south.reader.latestOffset(south.reader.initialOffset(), ReadAllAvailable())


def test_queries_that_share_a_group_wait_for_as_long_as_a_batch_takes(
    bootstrap: str, topic: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = threading.Semaphore(0)
    plain = DeadlockCheck.check

    def check(watching: DeadlockCheck) -> None:
        plain(watching)
        checks.release()

    monkeypatch.setattr(DeadlockCheck, "check", check)
    # Longer than a busy machine takes from an offer to its tasks, and shorter than the wait below.
    monkeypatch.setattr(deadlock, "UNASKED_MAX_S", 3.0)
    produce(bootstrap, topic, COUNTS)
    north, south = two(start)
    assert north.offer()
    north.write()  # Spark has begun to read it
    thread = threading.Thread(target=south.offer)
    thread.start()
    for _ in range(100):
        assert checks.acquire(timeout=60)
    while thread.is_alive():
        if north.offer():
            north.write()
    south.offer()
    assert once(north.sink + south.sink, COUNTS)
