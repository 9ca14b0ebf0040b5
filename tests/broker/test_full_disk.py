"""A full disk: clients get an error, and the broker logs it once."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort import Producer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.broker.log.storage import Storage
from kohort.errors import ErrorCode, KafkaError
from tests.broker.full_disks import full_disk
from tests.broker.processes import DEADLINE_S, BrokerProcess

FULL = Path("/dev/full")
PARTITIONS = (TopicPartition("a", 0), TopicPartition("b", 0))


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (each.levelname, each.getMessage())
        for each in caplog.records
        if each.name.startswith("kohort.broker")
    ]


def write(storage: Storage, path: Path) -> None:
    with storage.writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.write(descriptor, b"value")
        finally:
            os.close(descriptor)


def test_a_full_disk_is_told_once_with_path_and_advice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Storage(lambda: 0.0)
    for _ in range(100):
        with pytest.raises(KafkaError, match="No space left") as caught:
            write(storage, FULL)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    ((level, line),) = told(caplog)
    assert level == "ERROR"
    assert line.startswith("/dev/full: No space left on device; ")
    assert "free space" in line


def refuse(storage: Storage, path: Path) -> None:
    with pytest.raises(KafkaError), storage.writing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_it_is_over_when_what_was_refused_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A small write to another file may still fit into its last disk block."""
    storage = Storage(lambda: 0.0)
    file, other = tmp_path / "file", tmp_path / "other"
    refuse(storage, file)
    write(storage, other)
    assert len(told(caplog)) == 1
    write(storage, file)
    write(storage, file)
    assert told(caplog)[1:] == [("WARNING", f"{file}: writes to the disk succeed again")]


def test_the_last_line_about_a_disk_that_is_almost_full_is_true(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    storage = Storage(lambda: now)
    file = tmp_path / "file"
    for second in range(100):
        now = second * 0.5
        refuse(storage, file)
        if told(caplog):
            assert told(caplog)[-1][0] == "ERROR"
        write(storage, file)
    assert [level for level, _ in told(caplog)] == ["ERROR", "WARNING", "ERROR"]
    now = 1_000.0
    write(storage, file)
    refuse(storage, file)
    assert [level for level, _ in told(caplog)][3:] == ["WARNING", "ERROR"]


def test_another_cause_is_news(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    for code in (errno.ENOSPC, errno.EROFS, errno.ENOSPC, errno.EIO):
        with pytest.raises(KafkaError), storage.reading(FULL):
            raise OSError(code, os.strerror(code))
    assert [line.partition(";")[0] for _, line in told(caplog)] == [
        "/dev/full: No space left on device",
        "/dev/full: Read-only file system",
        "/dev/full: Input/output error",
    ]


@contextmanager
def files_no_larger_than(size: int, process: int) -> Iterator[None]:
    """Limit another process, as threads of this one write files as well."""
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_producer_fails_in_time_or_goes_on_when_there_is_room(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        BrokerProcess(tmp_path) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as writer,
        Producer(bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=2_000) as hasty,
    ):
        writer.send("t", bytes(500_000)).result(DEADLINE_S)
        hasty.send("t", b"value").result(DEADLINE_S)
        size = next(tmp_path.rglob("t-0/*.log")).stat().st_size
        with files_no_larger_than(size, broker.process.pid):
            with pytest.raises(KafkaError):
                hasty.send("t", b"value").result(DEADLINE_S)
            late = writer.send("t", b"value")
        late.result(DEADLINE_S)
    lines = [line for line in capfd.readouterr().err.splitlines() if f"{tmp_path}/t-0" in line]
    first, *others = lines
    assert "ERROR" in first
    assert "File too large" in first
    assert "KAFKA_STORAGE_ERROR" in first
    assert not any("ERROR" in line for line in others)
    assert any("again" in line for line in others)


def test_a_broker_that_is_stopped_while_the_disk_is_full_ends_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as writer:
            sent = [writer.send(each.topic, b"v") for each in PARTITIONS for _ in range(10)]
            assert all(each.result(DEADLINE_S) for each in sent)
        with full_disk():
            broker.stop()
        broker.start()
        data = broker._running().context.data
        assert [data.log(each).log_end_offset for each in PARTITIONS] == [10, 10]
    ((level, line),) = told(caplog)
    assert level == "ERROR"
    assert "No space left on device: partitions could not be closed cleanly: a-0, b-0;" in line
    assert "no acknowledged record is lost" in line
