"""The data directory: its lock, its topics, its producer ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.log.directory import DataDirectory, DataDirectoryError
from kohort.broker.log.partition_log import LogConfig
from kohort.types import TopicPartition
from tests.broker.log.batches import batch


def opened(path: Path) -> DataDirectory:
    return DataDirectory(path, LogConfig())


def test_a_second_broker_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(DataDirectoryError, match=r"in use by another broker \(process \d+\)"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_topics_their_settings_and_records_survive_a_restart(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    topic = directory.create_topic("a-b", 3, {"cleanup.policy": "compact"})
    directory.log(TopicPartition("a-b", 2)).append(batch(b"v"), 0)
    directory.close()
    again = opened(tmp_path)
    assert again.topics == {"a-b": topic}
    assert again.log(TopicPartition("a-b", 2)).log_end_offset == 1
    assert again.log(TopicPartition("a-b", 2)).config.compact
    assert not again.has_log(TopicPartition("a-b", 0))
    again.close()


def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    first = directory.create_topic("t", 1, {})
    directory.log(TopicPartition("t", 0)).append(batch(b"v"), 0)
    directory.delete_topic("t")
    assert not directory.has_log(TopicPartition("t", 0))
    second = directory.create_topic("t", 1, {})
    assert second.topic_id != first.topic_id
    assert directory.log(TopicPartition("t", 0)).log_end_offset == 0
    directory.close()


def test_records_of_a_topic_that_was_being_deleted_do_not_come_back(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.create_topic("t", 1, {})
    directory.log(TopicPartition("t", 0)).append(batch(b"v"), 0)
    directory.close()
    # As a crash between the two halves of a deletion leaves it.
    (tmp_path / "meta.json").write_text('{"cluster_id": "x", "topics": []}')
    again = opened(tmp_path)
    again.create_topic("t", 1, {})
    assert again.log(TopicPartition("t", 0)).log_end_offset == 0
    again.close()


def test_producer_ids_never_come_twice(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        directory = opened(tmp_path)
        seen += [directory.next_producer_id() for _ in range(1_500)]
        directory.close()
    assert len(set(seen)) == len(seen)


def test_a_directory_that_is_not_a_brokers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("[]")
    with pytest.raises(DataDirectoryError, match=r"meta\.json"):
        opened(tmp_path)
