"""The data directory: its lock, topics and producer ids, and files that are not its own."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory, DataDirectoryError, Topic
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from tests.broker.log.batches import batch
from tests.broker.log.crashes import Crash, dying_after

PARTITION = TopicPartition("t", 0)


def opened(path: Path) -> DataDirectory:
    return DataDirectory(path, LogConfig())


def crash(directory: DataDirectory) -> None:
    """Leave the directory as if the process had died."""
    for log in directory.open_logs.values():
        log.abandon()
    directory._logs.clear()
    directory.close()


def test_a_second_broker_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(DataDirectoryError, match=r"in use by another broker \(process \d+\)"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_broker_in_another_process_is_refused_too(tmp_path: Path) -> None:
    first = opened(tmp_path)
    code = "import sys; from pathlib import Path; from kohort.broker.log.config import LogConfig; "
    code += "from kohort.broker.log.directory import DataDirectory; "
    code += "DataDirectory(Path(sys.argv[1]), LogConfig())"
    command = [sys.executable, "-c", code, str(tmp_path)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "in use by another broker" in second.stderr
    first.close()


def test_a_child_that_is_being_started_does_not_keep_the_directory(tmp_path: Path) -> None:
    """Between fork and exec it has the same open files as its parent."""
    first = opened(tmp_path)
    first._lock, twin = os.dup(first._lock), first._lock
    first.close()
    opened(tmp_path).close()
    os.close(twin)


def test_topics_their_settings_and_records_survive_a_restart(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    topic = directory.create_topic("a-b", 3, {"cleanup.policy": "compact"})
    directory.log(TopicPartition("a-b", 2)).append(batch(b"v", key=b"k"), 0)
    cluster_id = directory.cluster_id
    directory.close()
    again = opened(tmp_path)
    assert again.topics == {"a-b": topic}
    assert again.cluster_id == cluster_id
    assert again.log(TopicPartition("a-b", 2)).log_end_offset == 1
    assert again.log(TopicPartition("a-b", 2)).config.compact
    assert not again.has_log(TopicPartition("a-b", 0))
    again.close()


def test_a_changed_topic_changes_its_open_logs(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    topic = directory.create_topic("t", 1, {})
    log = directory.log(PARTITION)
    changed = type(topic)("t", topic.topic_id, 2, {"segment.bytes": "5000"})
    directory.change_topics([changed])
    assert log.config.segment_bytes == 5000
    directory.close()
    again = opened(tmp_path)
    assert again.topics == {"t": changed}
    again.close()


def test_a_topic_is_made_once(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.create_topic("t", 1, {})
    with pytest.raises(KafkaError) as caught:
        directory.create_topic("t", 2, {})
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert directory.topics["t"].partitions == 1
    directory.close()


def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    first = directory.create_topic("t", 1, {})
    directory.log(PARTITION).append(batch(b"v"), 0)
    directory.delete_topics(["t"])
    assert not directory.has_log(PARTITION)
    kept = {".lock", "meta.properties", "topics.json", "topics.json.reserve"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    second = directory.create_topic("t", 1, {})
    assert second.topic_id != first.topic_id
    assert directory.log(PARTITION).log_end_offset == 0
    directory.close()


def test_a_death_at_any_step_of_making_and_deleting_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(200):
        path = tmp_path / str(steps)
        directory = opened(path)
        directory.create_topic("kept", 1, {})
        directory.log(TopicPartition("kept", 0)).append(batch(b"v"), 0)
        answered = "nothing"
        with dying_after(steps, monkeypatch):
            try:
                directory.create_topic("t", 1, {})
                answered = "made"
                directory.log(PARTITION).append(batch(b"v"), 0)
                answered = "written"
                directory.delete_topics(["t"])
                answered = "deleted"
            except Crash:
                pass
        crash(directory)
        again = opened(path)
        assert again.log(TopicPartition("kept", 0)).log_end_offset == 1
        if answered in ("made", "written"):
            # A deletion without a response may have succeeded.
            assert "t" in again.topics or answered == "written"
        if answered == "deleted":
            assert "t" not in again.topics
        if "t" not in again.topics:
            assert not list(path.glob("*-delete"))
            again.create_topic("t", 1, {})
            assert again.log(PARTITION).log_end_offset == 0
        elif answered == "written":
            assert again.log(PARTITION).log_end_offset == 1
        again.close()
        shutil.rmtree(path)
        if answered == "deleted":
            return
    pytest.fail("the deletion never came to its end")


def test_records_of_an_earlier_topic_of_the_name_do_not_come_back(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.create_topic("t", 1, {})
    directory.log(PARTITION).append(batch(b"v"), 0)
    directory.close()
    # As if the topic had been deleted and recreated, and every removal had failed.
    topics = tmp_path / "topics.json"
    text = topics.read_text()
    start = text.index('"id": "') + 7
    topics.write_text(text[:start] + str(uuid.uuid4()) + text[start + 36 :])
    again = opened(tmp_path)
    assert again.log(PARTITION).log_end_offset == 0
    again.close()


def test_what_is_not_the_brokers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos-2024").mkdir()
    (tmp_path / "photos-2024" / "cat.jpg").write_bytes(b"meow")
    (tmp_path / "notes-delete").mkdir()
    directory = opened(tmp_path)
    directory.create_topic("photos", 3_000, {})
    with pytest.raises(KafkaError, match="may not belong to topic photos") as caught:
        directory.log(TopicPartition("photos", 2024))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    directory.delete_topics(["photos"])
    directory.close()
    opened(tmp_path).close()
    assert (tmp_path / "photos-2024" / "cat.jpg").read_bytes() == b"meow"
    assert (tmp_path / "notes-delete").is_dir()


def test_the_directory_of_a_real_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(DataDirectoryError, match="Apache Kafka"):
        opened(tmp_path)


def test_partitions_cost_nothing_until_they_are_used(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.create_topic("__consumer_offsets", 50, {})
    assert not list(tmp_path.glob("__consumer_offsets-*"))
    assert not directory.open_logs
    directory.close()


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, LogConfig(), max_open_files=3)
    directory.create_topic("t", 20, {})
    for _ in range(2):
        for number in range(20):
            directory.log(TopicPartition("t", number)).append(batch(b"v"), 0)
    ends = [directory.log(TopicPartition("t", number)).log_end_offset for number in range(20)]
    assert ends == [2] * 20
    directory.close()


def test_producer_ids_never_come_twice(tmp_path: Path) -> None:
    seen: list[int] = []
    for number in range(4):
        directory = opened(tmp_path)
        seen += [directory.next_producer_id() for _ in range(1_500)]
        if number % 2:
            directory.close()
        else:
            crash(directory)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("left", ["topics.json.reserve", "producer-ids"])
@pytest.mark.parametrize("has_meta", [True, False])
def test_a_lost_list_of_topics_is_proposed_anew(tmp_path: Path, left: str, has_meta: bool) -> None:
    directory = opened(tmp_path)
    topic = directory.create_topic("a-1", 5, {"retention.ms": "-1"})
    directory.log(TopicPartition("a-1", 2)).append(batch(b"1", b"2", b"3"), 0)
    directory.log(TopicPartition("a-1", 0))
    directory.next_producer_id()
    directory.close()
    for name in {"topics.json", "topics.json.reserve", "producer-ids"} - {left}:
        (tmp_path / name).unlink()
    if not has_meta:
        (tmp_path / "meta.properties").unlink()
    with pytest.raises(DataDirectoryError, match="the list of the topics, is missing"):
        opened(tmp_path)
    (tmp_path / "topics.json.proposal").rename(tmp_path / "topics.json")
    again = opened(tmp_path)
    assert again.topics == {"a-1": Topic("a-1", topic.topic_id, 3, {})}
    assert again.log(TopicPartition("a-1", 2)).log_end_offset == 3
    again.close()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[{", b"{}", b"null", b"\x00" * 200, b"\xff\xfe", b"[7]", b'[{"name": "t"}]',
        b'[{"name": "t", "id": 5, "partitions": 1, "configs": {}}]',
        b'[{"name": "t", "id": "5", "partitions": 1, "configs": {}}]',
    ],
)  # fmt: skip
def test_a_damaged_list_of_topics_is_proposed_anew(tmp_path: Path, content: bytes) -> None:
    directory = opened(tmp_path)
    directory.create_topic("t", 1, {})
    directory.log(PARTITION).append(batch(b"1"), 0)
    directory.close()
    (tmp_path / "topics.json").write_bytes(content)
    with pytest.raises(DataDirectoryError, match=r"the list of the topics, is damaged .* a backup"):
        opened(tmp_path)
    assert (tmp_path / "topics.json").read_bytes() == content
    (tmp_path / "topics.json.proposal").rename(tmp_path / "topics.json")
    again = opened(tmp_path)
    assert again.log(PARTITION).log_end_offset == 1
    again.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=1\n",
        b"\xff\x00",
        b"version=1\ncluster.id=vafhdH",
        b"version=1\ncluster.id=vafhdH\nnode.i",
        b"version=1\ncluster.id=vafh\0\0\0\nnode.id=1\n",
    ],
)
def test_a_damaged_identity_can_be_made_anew(tmp_path: Path, content: bytes) -> None:
    opened(tmp_path).close()
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(
        DataDirectoryError, match=r"has no cluster\.id, or is damaged; restore it from a backup"
    ):
        opened(tmp_path)
    (tmp_path / "meta.properties").unlink()
    opened(tmp_path).close()


@pytest.mark.parametrize("content", [b"", b"\x00" * 5, b"\xff", b"-1000", b"0", b"9" * 19, b"1234"])
def test_producer_ids_do_not_come_again_after_damage(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    seen = {directory.next_producer_id() for _ in range(10)}
    directory.close()
    (tmp_path / "producer-ids").write_bytes(content)
    again = opened(tmp_path)
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert f"{tmp_path / 'producer-ids'} is damaged" in line
    assert seen.isdisjoint(again.next_producer_id() for _ in range(10))
    again.close()
    opened(tmp_path).close()
    assert len(caplog.records) == 1


def failing_close(directory: DataDirectory, code: int, when: str) -> None:
    """Close a directory while a system call fails."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, when, refuse)
        directory.close()


@pytest.mark.parametrize(
    ("code", "when", "meaning"),
    [
        (errno.ENOSPC, "write", "no acknowledged record is lost"),
        (errno.EROFS, "write", "no acknowledged record is lost"),
        (errno.EIO, "fsync", "may not have reached the disk"),
    ],
)
def test_a_disk_that_takes_nothing_at_the_end_is_told_once(
    tmp_path: Path, code: int, when: str, meaning: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    partitions = [TopicPartition("t", number) for number in range(30)]
    directory.create_topic("t", 30, {})
    for partition in partitions:
        directory.log(partition).append(batch(b"1"), 0)
    failing_close(directory, code, when)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(f"{os.strerror(code)}: partitions could not be closed cleanly: t-0, ")
    assert " and 10 others; " in line
    assert meaning in line
    again = opened(tmp_path)
    assert [again.log(partition).log_end_offset for partition in partitions] == [1] * 30
    again.close()


def test_a_partition_that_cannot_be_closed_keeps_no_other_from_it(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.create_topic("t", 3, {})
    logs = [directory.log(TopicPartition("t", number)) for number in range(3)]
    for log in logs:
        log.append(batch(b"1"), 0)
    (logs[0].directory / "clean-shutdown.tmp").mkdir()
    directory.close()
    assert [(log.directory / "clean-shutdown").exists() for log in logs] == [False, True, True]


def test_a_directory_that_is_not_a_brokers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text("{broken")
    with pytest.raises(DataDirectoryError, match=r"topics\.json"):
        opened(tmp_path)


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError, match="file"):
        opened(tmp_path / "file")
