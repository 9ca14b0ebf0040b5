"""Bad surroundings of a region: a full disk, records of a newer version, no right to write."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them so
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import AdminClient as ForeignAdmin

from kohort.client import AdminClient, NewTopic, Producer
from kohort.errors import KafkaError
from kohort.region import ParquetDirectory, RegionSink, SinkError
from kohort.region.errors import NewerRecordError
from kohort.region.sinks import directory
from tests.real_kafka.broker import RealKafka
from tests.region.regions import (
    Running,
    eventually,
    new_topic,
    produce,
    running,
    visible,
    worker,
)

PARTITIONS = 4
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class FullWhenPublishing(ParquetDirectory):
    """A directory whose disk is full when the controller writes a manifest, while `is_full`."""

    is_full = False

    def publish(self, *given: Any) -> None:
        if self.is_full:
            raise no_space()
        super().publish(*given)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_ends_the_operator_that_writes_and_loses_nothing(
    address: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of one of two machines that share a directory, each under a path of its own."""
    out, own = tmp_path / "out", tmp_path / "own"
    out.mkdir()
    own.symlink_to(out)
    synchronize, is_full = directory._sync, False

    def sync(folder: Path) -> None:
        if is_full and folder.is_relative_to(own):
            raise no_space()
        synchronize(folder)

    monkeypatch.setattr(directory, "_sync", sync)
    produce(address, topic, PARTITIONS, 100)
    one = Running(worker(address, topic, ParquetDirectory(own), "one"))
    with running(worker(address, topic, ParquetDirectory(out), "two")) as (two,):
        eventually(lambda: one.owned == two.owned == 2, "both work")
        is_full = True
        produce(address, topic, PARTITIONS, 100, first=100)
        one.join()
        eventually(lambda: visible(out) == 200, "the other one does its work")
    assert isinstance(one.error, SinkError)
    assert f"output cannot be stored in {own}: [Errno 28]" in str(one.error)
    assert two.error is None


def test_what_a_full_disk_keeps_from_being_published_is_published_later(
    address: str, topic: str, tmp_path: Path
) -> None:
    sink = FullWhenPublishing(tmp_path)
    with running(worker(address, topic, sink)) as (one,):
        produce(address, topic, PARTITIONS, 100)
        eventually(lambda: visible(tmp_path) == 100, "it works")
        sink.is_full = True
        produce(address, topic, PARTITIONS, 100, first=100)
        eventually(lambda: bool(one.worker.state and one.worker.state.unpublished), "it waits")
        assert visible(tmp_path) == 100
        sink.is_full = False
        eventually(lambda: visible(tmp_path) == 200, "the disk has room again")
    assert one.error is None


def test_a_record_of_a_newer_version_ends_the_operators(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, 100)
    one = Running(worker(address, topic, ParquetDirectory(tmp_path)))
    eventually(lambda: visible(tmp_path) == 100, "it works")
    with Producer(bootstrap_servers=address) as newer:
        newer.send(f"__kohort-region-region-{topic}", b'{"v": 99}', b"drain/a/b")
    one.join()
    assert isinstance(one.error, NewerRecordError)
    assert "version" in str(one.error)


def deny(address: str, topic: str) -> None:
    """Take from everybody the right to write to a topic."""
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    admin = ForeignAdmin({"bootstrap.servers": address})
    for future in admin.create_acls([binding]).values():
        future.result(60)


@pytest.fixture
def real_kafka() -> None:
    """Marks what needs a live Kafka: one of its own."""


@pytest.mark.parametrize("suffix", ["", "-state"])
def test_who_may_not_write_is_told_which_topic(
    real_kafka: None, tmp_path: Path, suffix: str
) -> None:
    with RealKafka(tmp_path / "kafka", AUTHORIZER) as kafka:
        address = kafka.bootstrap_servers
        topic = new_topic(address)
        produce(address, topic, PARTITIONS, 100)
        refused = f"__kohort-region-region-{topic}{suffix}"
        compacted = {"cleanup.policy": "compact"}
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(refused, 1, 1, compacted)])
        deny(address, refused)
        sink: RegionSink = ParquetDirectory(tmp_path / "out")
        one = Running(worker(address, topic, sink))
        one.join()
    assert isinstance(one.error, KafkaError)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(one.error)
    assert refused in str(one.error)
