"""What a region says when records, states or time are missing, and what it never does then."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from kohort.client import AdminClient, NewTopic
from kohort.client.admin.values import ConfigResource
from kohort.errors import ConfigError
from kohort.region import ControlTopicError, ParquetDirectory, RegionStateError, SourceError
from kohort.region import source as source_module
from kohort.region.log import policies
from kohort.region.machines.events import Close, Revoked
from kohort.types import TopicPartition
from tests.region.harness import P, Region
from tests.region.regions import (
    PROTOCOLS,
    Running,
    eventually,
    produce,
    running,
    running_sum,
    visible,
    worker,
)


def test_an_end_without_a_last_checkpoint_is_told() -> None:
    region = Region()
    region.elect()
    a = region.process("a", owns=[P])
    a.deliver(P, 5)
    a.cuts = False
    a.put(Close())
    region.pass_time(5_000)
    assert a.is_closed
    (fact,) = [each for seen in a.seen for each in seen.observed if each.is_warning]
    assert "numbers-0 could not be handed over" in fact.text
    assert "drain_timeout_ms is 5000" in fact.text
    assert "since the beginning" in fact.text
    assert "checkpoint 1 waits for a/1" in fact.text


def test_a_revocation_that_is_not_handed_over_is_told() -> None:
    region = Region()
    region.elect()
    a = region.process("a", owns=[P])
    a.deliver(P, 5)
    a.cuts = False
    a.put(Revoked(frozenset({P})))
    region.pass_time(5_000)
    (fact,) = [each for seen in a.seen for each in seen.observed if each.is_warning]
    assert "numbers-0 could not be handed over" in fact.text


def test_an_end_in_order_warns_of_nothing() -> None:
    region = Region()
    region.elect()
    a = region.process("a", owns=[P])
    a.deliver(P, 5)
    a.put(Close())
    assert a.is_closed
    assert not any(each.is_warning for seen in a.seen for each in seen.observed)


def test_stop_says_that_nothing_was_checkpointed(
    address: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    produce(address, topic, 4, 400)
    entered, release = threading.Event(), threading.Event()

    def stuck(*given: Any) -> Any:
        entered.set()
        release.wait(60)
        return running_sum(*given)

    slow = worker(
        address, topic, ParquetDirectory(tmp_path), function=stuck, drain_timeout_ms=3_000
    )
    with caplog.at_level(logging.WARNING, "kohort.region"), running(slow) as (one,):
        eventually(entered.is_set, "the function runs")
        slow.stop()
        eventually(lambda: "could not be handed over" in caplog.text, "it is told")
        release.set()
        one.join()
    assert one.error is None
    assert "one/" in caplog.text
    assert "drain_timeout_ms is 3000" in caplog.text
    assert visible(tmp_path) == 0
    with running(worker(address, topic, ParquetDirectory(tmp_path), drain_timeout_ms=3_000)):
        eventually(lambda: visible(tmp_path) == 400, "nothing is lost")


def test_a_source_that_was_truncated_is_named_with_the_gap(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, 4, 400)
    with running(worker(address, topic, ParquetDirectory(tmp_path))):
        eventually(lambda: visible(tmp_path) == 400, "all is visible")
    produce(address, topic, 4, 400, first=400)
    with AdminClient(bootstrap_servers=address) as admin:
        admin.delete_records({TopicPartition(topic, each): 150 for each in range(4)})
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        one.join()
    assert isinstance(one.error, SourceError)
    assert f"{topic}-0 from 100 to 149" in str(one.error)
    assert "start a region of another name" in str(one.error)
    assert visible(tmp_path) == 400


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_source_topic_that_is_deleted_ends_the_worker(
    is_made_again: bool,
    protocol: str,
    address: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also between two polls; and nothing that the worker asks for creates the topic."""
    monkeypatch.setattr(source_module, "_GONE_S", 0.3)
    produce(address, topic, 4, 400)
    made = worker(address, topic, ParquetDirectory(tmp_path), **PROTOCOLS[protocol])
    with running(made) as (one,), AdminClient(bootstrap_servers=address) as admin:
        eventually(lambda: visible(tmp_path) == 400, "all is visible")
        admin.delete_topics([topic])
        if is_made_again:
            admin.create_topics([NewTopic(topic, 4)])
        one.join()
        assert (topic in admin.list_topics()) == is_made_again
    assert isinstance(one.error, SourceError)
    assert topic in str(one.error)
    assert "Records that were not read before are lost" in str(one.error)


def test_a_worker_that_may_create_topics_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allow_auto_create_topics cannot be set"):
        worker(address, "t", ParquetDirectory(tmp_path), allow_auto_create_topics=True)


@pytest.mark.parametrize("while_running", [False, True])
def test_a_state_topic_that_was_deleted_is_named(
    while_running: bool, address: str, topic: str, tmp_path: Path
) -> None:
    states = f"__kohort-region-region-{topic}-state"
    produce(address, topic, 4, 400)
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: visible(tmp_path) == 400, "all is visible")
        if while_running:
            with AdminClient(bootstrap_servers=address) as admin:
                admin.delete_topics([states])
            produce(address, topic, 4, 400, first=400)
            one.join()
    if not while_running:
        with AdminClient(bootstrap_servers=address) as admin:
            admin.delete_topics([states])
        produce(address, topic, 4, 400, first=400)
        with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
            one.join()
    assert isinstance(one.error, RegionStateError)
    assert f"{states} or records of it were deleted" in str(one.error)
    assert visible(tmp_path) == 400


@pytest.mark.parametrize("suffix", ["", "-state"])
def test_a_topic_that_is_no_longer_compacted_is_told_while_workers_go_on(
    address: str,
    topic: str,
    tmp_path: Path,
    suffix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(policies, "_EVERY_S", 0.05)
    caplog.set_level(logging.INFO, "kohort.region")
    changed = f"__kohort-region-region-{topic}{suffix}"
    resource = ConfigResource("topic", changed)
    produce(address, topic, 4, 400)
    with (
        AdminClient(bootstrap_servers=address) as admin,
        running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,),
    ):
        eventually(lambda: visible(tmp_path) == 400, "all is visible")
        admin.alter_configs({resource: {"cleanup.policy": "delete"}})
        told = f"{changed} now has cleanup.policy=delete, and must have compact"
        eventually(lambda: told in caplog.text, "it is told")
        produce(address, topic, 4, 400, first=400)
        eventually(lambda: visible(tmp_path) == 800, "it goes on")
        refused = Running(worker(address, topic, ParquetDirectory(tmp_path), "two"))
        refused.join()
        admin.alter_configs({resource: {"cleanup.policy": "compact"}})
        right = f"{changed} has cleanup.policy=compact again"
        eventually(lambda: right in caplog.text, "it is told that it is right again")
    assert one.error is None
    assert isinstance(refused.error, ControlTopicError)
    assert "cleanup.policy=delete" in str(refused.error)
    (warning,) = [each for each in caplog.records if told in each.getMessage()]
    assert warning.levelno == logging.WARNING
    assert "Set cleanup.policy=compact again" in warning.getMessage()
