"""Topics can be deleted from a full disk, which frees space on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from tests.broker.full_disks import full_disk
from tests.broker.log.batches import batch
from tests.broker.log.crashes import Crash, dying_after

KEPT = TopicPartition("kept", 0)


def opened(path: Path) -> DataDirectory:
    return DataDirectory(path, LogConfig())


def prepared(path: Path, doomed: int = 1) -> DataDirectory:
    """Return a directory with a topic that stays and others to delete."""
    directory = opened(path)
    for name in ("kept", *(f"doomed-{number}" for number in range(doomed))):
        directory.create_topic(name, 1, {})
        directory.log(TopicPartition(name, 0)).append(batch(b"v"), 0)
    return directory


def test_a_topic_is_deleted_from_a_full_disk(tmp_path: Path) -> None:
    directory = prepared(tmp_path)
    with full_disk():
        directory.delete_topics(["doomed-0"])
        assert {*directory.topics} == {"kept"}
        assert not (tmp_path / "doomed-0-0").exists()
    directory.close()
    again = opened(tmp_path)
    assert {*again.topics} == {"kept"}
    assert again.log(KEPT).log_end_offset == 1
    again.close()


def test_as_many_as_there_are_when_each_makes_room(tmp_path: Path) -> None:
    """The list of these topics takes more than one disk block."""
    directory = prepared(tmp_path, 150)
    assert (tmp_path / "topics.json").stat().st_size > 16 * 1024
    for number in range(150):
        with full_disk():
            directory.delete_topics([f"doomed-{number}"])
        directory.change_topics([directory.topics["kept"]])
    assert {*directory.topics} == {"kept"}
    directory.close()


def test_nothing_else_may_use_what_is_reserved(tmp_path: Path) -> None:
    directory = prepared(tmp_path)
    with full_disk():
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                directory.create_topic("new", 1, {})
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        directory.delete_topics(["doomed-0"])
    directory.close()


def test_a_death_at_any_step_of_deleting_from_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(100):
        path, is_over = tmp_path / str(steps), False
        directory = prepared(path)
        with full_disk(), dying_after(steps, monkeypatch):
            try:
                directory.delete_topics(["doomed-0"])
                is_over = True
            except Crash:
                pass
        for log in directory.open_logs.values():
            log.abandon()
        directory._logs.clear()
        directory.close()
        again = opened(path)
        assert {*again.topics} in ({"kept"}, {"kept", "doomed-0"})
        assert again.log(KEPT).log_end_offset == 1
        assert ("doomed-0" in again.topics) == again.has_log(TopicPartition("doomed-0", 0))
        again.close()
        if is_over:
            assert {*again.topics} == {"kept"}
            return
    pytest.fail("the deletion never came to its end")
