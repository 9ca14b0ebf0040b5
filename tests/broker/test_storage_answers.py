"""A broker with a failing disk answers every request, and logs the cause once."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from kohort.broker import EmbeddedBroker
from kohort.broker.dispatch import SERVED
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire import apis
from kohort.wire.codec import frame
from kohort.wire.codec.schema import Message, Request, Struct
from kohort.wire.messages.alter_configs import (
    AlterConfigsRequest,
    ReplacedConfig,
    ReplacedConfigsResource,
)
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from tests.broker.full_disks import full_disk
from tests.broker.log.batches import batch
from tests.broker.mutations import Enemy
from tests.broker.peer import Peer, fetch_request, produce_request

T, UNUSED = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC, TIMEOUT_MS, OF_EACH = 2, 1_000, 6
# Joins and fetches may wait for others; this test does not.
PATIENCE_S = 0.05
REFUSED = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR}

_POSITION = OffsetCommitRequestPartition(
    partition_index=0, committed_offset=1, committed_metadata=""
)
_FORGET = OffsetDeleteRequestTopic(
    name="t", partitions=(OffsetDeleteRequestPartition(partition_index=0),)
)
_SET = AlterableConfig(name="retention.ms", config_operation=0, value="9")
WRITES: list[tuple[Request[Any], int]] = [
    (produce_request(T, batch(b"value"), -1), 12),
    (produce_request(UNUSED, batch(b"value"), -1), 12),
    (fetch_request(UNUSED, 0, 1_000, 100), 12),
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4),
    (
        CreateTopicsRequest(
            topics=(
                CreatableTopic(
                    name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()
                ),
            )
        ),
        7,
    ),
    (
        CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name="t", count=9, assignments=None),),
            timeout_ms=TIMEOUT_MS,
            validate_only=False,
        ),
        3,
    ),
    (
        DeleteRecordsRequest(
            topics=(
                DeleteRecordsTopic(
                    name="t", partitions=(DeleteRecordsPartition(partition_index=0, offset=-1),)
                ),
            ),
            timeout_ms=TIMEOUT_MS,
        ),
        2,
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=(
                AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(_SET,)),
            ),
            validate_only=False,
        ),
        1,
    ),
    (
        AlterConfigsRequest(
            resources=(
                ReplacedConfigsResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=(ReplacedConfig(name="retention.ms", value="9"),),
                ),
            ),
            validate_only=False,
        ),
        2,
    ),
    (
        OffsetCommitRequest(
            group_id="g",
            member_id="",
            topics=(OffsetCommitRequestTopic(name="t", partitions=(_POSITION,)),),
        ),
        7,
    ),
    (OffsetDeleteRequest(group_id="g", topics=(_FORGET,)), 0),
    (DeleteGroupsRequest(groups_names=("g",)), 2),
]


@contextmanager
def unreadable_disk() -> Iterator[None]:
    """Refuse to open and read files, as a broken disk does."""

    def refusing(*_: object, **__: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as disk:
        for name in ("open", "pread", "write", "fsync", "statvfs", "rename", "unlink", "mkdir"):
            disk.setattr(os, name, refusing)
        disk.setattr("shutil.disk_usage", refusing)
        yield


def codes(answer: object) -> set[int]:
    """Return all error codes in a response."""
    if isinstance(answer, tuple):
        return {code for each in answer for code in codes(each)}
    if not isinstance(answer, Struct):
        return set()
    values = asdict(answer)
    own = {values["error_code"]} if "error_code" in values else set()
    return own | codes(tuple(values.values()))


def errors(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = (each for each in caplog.records if each.levelno >= logging.ERROR)
    return [(each.name, each.getMessage()) for each in found]


@contextmanager
def prepared(data: Path) -> Iterator[tuple[EmbeddedBroker, Peer]]:
    """Start a broker with a topic, and a group with offsets in its log."""
    with (
        EmbeddedBroker(
            data, offsets_topic_num_partitions=1, protocols=("classic", "consumer")
        ) as broker,
        Peer(broker.bootstrap_servers) as peer,
    ):
        peer.create("t", 2)
        assert peer.produce(T, batch(b"value")).error_code == ErrorCode.NONE
        commit = next(each for each, _ in WRITES if isinstance(each, OffsetCommitRequest))
        assert codes(peer.ask(commit, 7)) == {ErrorCode.NONE}
        yield broker, peer


@pytest.mark.parametrize(
    ("request_", "version"), WRITES, ids=[type(each).__name__ for each, _ in WRITES]
)
def test_a_request_that_cannot_write_is_answered_so(
    request_: Request[Any],
    version: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with prepared(tmp_path) as (_, peer):
        with full_disk():
            assert codes(peer.ask(request_, version)) & REFUSED
            assert codes(peer.ask(MetadataRequest(topics=()), 12)) == {ErrorCode.NONE}
        ((logger, line),) = errors(caplog)
        assert logger == "kohort.broker.log.storage"
        assert "No space left on device" in line


@pytest.mark.parametrize("disk", [full_disk, unreadable_disk])
def test_whatever_is_asked_the_disk_is_the_only_error(
    disk: Callable[[], AbstractContextManager[None]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with prepared(tmp_path) as (broker, peer):
        asked = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
        enemy = Enemy(3, peer.ask(asked, 12).topics[0].topic_id)
        requests = [
            (enemy.message(apis.request_class(key), version), version)
            for key, served in sorted(SERVED.items())
            for version in range(served.first, served.last + 1)
            for _ in range(OF_EACH)
        ]
        with disk():
            for request, version in requests:
                send(broker.bootstrap_servers, request, version)
    lines = errors(caplog)
    assert {logger for logger, _ in lines} <= {"kohort.broker.log.storage"}
    assert 1 <= len(lines) <= 2


def send(bootstrap: str, request: Message, version: int) -> None:
    """Send a request, and wait briefly for its response."""
    with Peer(bootstrap) as peer:
        peer.socket.sendall(frame.encode_request(request, version, 1, "enemy"))
        peer.socket.settimeout(PATIENCE_S)
        try:
            peer.socket.recv(1)
        except (ConnectionError, TimeoutError):
            return
