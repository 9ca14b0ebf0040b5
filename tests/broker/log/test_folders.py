"""A broker removes only folders that it has marked for removal: damage costs no records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from tests.broker.log.batches import batch

PARTITION = TopicPartition("t", 0)
METADATA = "partition.metadata"


def opened(path: Path) -> DataDirectory:
    return DataDirectory(path, LogConfig())


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def strays(path: Path) -> list[Path]:
    return sorted(path.glob("*-stray"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a broker's directory with one record in its only partition."""
    directory = opened(tmp_path)
    directory.create_topic("t", 1, {})
    directory.log(PARTITION).append(batch(b"v"), 0)
    directory.close()
    return tmp_path


def flipped(content: bytes, at: int) -> bytes:
    damaged = bytearray(content)
    damaged[at] ^= 1
    return bytes(damaged)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "junk": lambda content: os.urandom(len(content)),
    "cut": lambda content: content[:-10],
    "flip in the version": lambda content: flipped(content, 9),
    "flip in the id": lambda content: flipped(content, 30),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_whose_owner_cannot_be_read_is_kept_and_refused(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    owner = path / "t-0" / METADATA
    sound = owner.read_bytes()
    owner.write_bytes(DAMAGE[damage](sound))
    before = contents(path / "t-0")
    directory = opened(path)
    for _ in range(2):
        with pytest.raises(KafkaError, match=METADATA) as caught:
            directory.log(PARTITION)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    directory.close()
    assert contents(path / "t-0") == before
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert str(owner) in told
    id_line = sound.decode().splitlines()[1]
    assert id_line in told
    owner.write_text(f"version: 0\n{id_line}")  # as the message advises
    again = opened(path)
    assert again.log(PARTITION).log_end_offset == 1
    again.close()


def test_each_folder_that_is_refused_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    directory.create_topic("t", 3, {})
    partitions = [TopicPartition("t", number) for number in range(3)]
    for partition in partitions:
        directory.log(partition).append(batch(b"v"), 0)
    directory.close()
    (tmp_path / "t-0" / METADATA).unlink()
    (tmp_path / "t-1" / METADATA).write_bytes(b"")
    again = opened(tmp_path)
    for partition in partitions[:2]:
        with pytest.raises(KafkaError):
            again.log(partition)
    assert again.log(partitions[2]).log_end_offset == 1
    again.close()
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert [name in line for name, line in zip(("t-0", "t-1"), told, strict=True)] == [True] * 2


def test_a_folder_that_an_older_list_of_topics_does_not_know_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    directory.create_topic("first", 1, {})
    older = (tmp_path / "topics.json").read_bytes()
    directory.create_topic("t", 1, {})
    directory.log(PARTITION).append(batch(b"v"), 0)
    directory.close()
    newer, before = (tmp_path / "topics.json").read_bytes(), contents(tmp_path / "t-0")
    (tmp_path / "topics.json").write_bytes(older)
    for _ in range(2):
        opened(tmp_path).close()
    (stray,) = strays(tmp_path)
    assert contents(stray) == before
    (told,) = warnings(caplog)
    assert all(word in told for word in (str(tmp_path / "t-0"), stray.name, "topics.json"))
    (tmp_path / "topics.json").write_bytes(newer)
    stray.rename(tmp_path / "t-0")
    again = opened(tmp_path)
    assert again.log(PARTITION).log_end_offset == 1
    again.close()


def test_the_longest_name_of_a_topic_can_be_set_aside_and_deleted(tmp_path: Path) -> None:
    name = "t" * 249
    directory = opened(tmp_path)
    directory.create_topic(name, 1, {})
    empty = (tmp_path / "topics.json").read_bytes()
    directory.log(TopicPartition(name, 0)).append(batch(b"v"), 0)
    directory.delete_topics([name])
    assert not list(tmp_path.glob("t*-*"))
    (tmp_path / "topics.json").write_bytes(empty)
    directory.create_topic(name, 1, {})
    directory.log(TopicPartition(name, 0)).append(batch(b"v"), 0)
    directory.close()
    (tmp_path / "topics.json").write_text("[]")
    opened(tmp_path).close()
    assert len(strays(tmp_path)) == 1


def test_deleting_a_topic_keeps_a_folder_whose_owner_cannot_be_read(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path / "t-0" / METADATA).write_bytes(b"")
    before = contents(path / "t-0")
    directory = opened(path)
    directory.delete_topics(["t"])
    directory.create_topic("t", 1, {})
    assert directory.log(PARTITION).log_end_offset == 0
    directory.close()
    (stray,) = strays(path)
    assert contents(stray) == before
    assert len(warnings(caplog)) == 1


def test_a_deletion_that_cannot_be_stored_leaves_the_topic_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened(path)
    log = directory.log(PARTITION)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("kohort.broker.log.directory.replace_file", refuse)
        with pytest.raises(KafkaError) as caught:
            directory.delete_topics(["t"])
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.append(batch(b"w"), 0).base_offset == 1
    assert len(log.read(0, 1 << 20)) > 0
    directory.close()
    again = opened(path)
    assert again.log(PARTITION).log_end_offset == 2
    again.close()


def test_a_mark_is_taken_back_only_if_its_place_is_free(path: Path) -> None:
    directory = opened(path)
    mark = path / f"{directory.topics['t'].topic_id.hex}.0-delete"
    directory.close()
    shutil.copytree(path / "t-0", mark)
    opened(path).close()
    (stray,) = strays(path)
    assert contents(stray) == contents(path / "t-0")
