"""Checkpoints as Spark writes them, and as crashes and mistakes leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from kohort.spark.checkpoint.log import (
    ArrowStore,
    CheckpointError,
    CheckpointLog,
    arrow_uri,
    local_folder,
)

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795476112501,"conf":{}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
OTHER = '{"logOffset":3}'


def manifest(batch: int) -> dict[str, Any]:
    ranges = {"0": [10 * batch, 10 * batch + 10]}
    return {"batch": batch, "nonce": "ab12", "topics": {"flights": ranges}}


class Checkpoint:
    """A checkpoint written by hand, in Spark's format."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)

    def offer(self, batch: int, *lines: str, version: str = "v1") -> None:
        text = "\n".join([version, METADATA, *(lines or [json.dumps(manifest(batch))])])
        self.write(f"offsets/{batch}", text)

    def finish(self, batch: int, text: str = COMMIT) -> None:
        self.write(f"commits/{batch}", text)

    def write(self, file: str, text: str) -> None:
        (self.folder / file).write_text(text)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint of north")


@pytest.fixture
def log(checkpoint: Checkpoint) -> CheckpointLog:
    return CheckpointLog(str(checkpoint.folder))


def test_a_batch_is_over_when_its_commit_is_there(
    checkpoint: Checkpoint, log: CheckpointLog
) -> None:
    assert not log.is_finished(manifest(7))
    checkpoint.offer(7)
    assert not log.is_finished(manifest(7))
    checkpoint.finish(6)
    assert not log.is_finished(manifest(7))
    checkpoint.finish(7)
    assert log.is_finished(manifest(7))
    assert not log.is_finished(manifest(8))


def test_the_last_batch_is_over_while_the_next_is_open(
    checkpoint: Checkpoint, log: CheckpointLog
) -> None:
    for batch in range(12):
        checkpoint.offer(batch)
        checkpoint.finish(batch)
    checkpoint.offer(12)
    assert log.is_finished(manifest(11))
    assert not log.is_finished(manifest(12))


def test_a_query_of_several_sources(checkpoint: Checkpoint, log: CheckpointLog) -> None:
    checkpoint.offer(0, OTHER, "-", "not JSON", json.dumps(manifest(0)))
    checkpoint.finish(0)
    assert log.is_finished(manifest(0))
    assert not log.is_finished(manifest(1))


def test_the_log_with_names_of_sources(checkpoint: Checkpoint, log: CheckpointLog) -> None:
    """Since Spark 4.1, with spark.sql.streaming.offsetLog.formatVersion=2."""
    checkpoint.offer(0, f"0:{OTHER}", f"north:{json.dumps(manifest(0))}", version="v2")
    checkpoint.finish(0)
    assert log.is_finished(manifest(0))
    assert not log.is_finished(manifest(1))


@pytest.mark.parametrize("commit", ["", "v1", "v1\n", "v1\n{", 'v1\n"'])
def test_a_commit_of_which_a_crash_has_left_a_part_is_none(
    checkpoint: Checkpoint, log: CheckpointLog, commit: str
) -> None:
    checkpoint.offer(7)
    checkpoint.finish(7, commit)
    assert not log.is_finished(manifest(7))


def test_no_part_of_an_offset_is_the_offset(checkpoint: Checkpoint, log: CheckpointLog) -> None:
    checkpoint.finish(7)
    checkpoint.offer(7)
    whole = (checkpoint.folder / "offsets/7").read_text()
    for length in range(2, len(whole)):
        checkpoint.write("offsets/7", whole[:length])
        assert not log.is_finished(manifest(7))
    checkpoint.write("offsets/7", whole)
    assert log.is_finished(manifest(7))


@pytest.mark.parametrize("file", ["offsets/7", "commits/7"])
@pytest.mark.parametrize("text", ["v9\n{}\n{}", "{}", "\x00\x00\n{}"])
def test_an_unknown_version_is_an_error(
    checkpoint: Checkpoint, log: CheckpointLog, file: str, text: str
) -> None:
    checkpoint.offer(7)
    checkpoint.finish(7)
    checkpoint.write(file, text)
    with pytest.raises(CheckpointError, match=f"{file} begins with .*option checkpointLocation"):
        log.is_finished(manifest(7))


def test_drafts_and_checksums_are_no_batches(checkpoint: Checkpoint, log: CheckpointLog) -> None:
    checkpoint.offer(7)
    checkpoint.finish(7)
    for name in (".8.crc", ".8.2f0c.TID15.tmp", "9.tmp", "-1", "²"):
        checkpoint.write(f"offsets/{name}", "nothing of Spark's log")
    assert log.is_finished(manifest(7))


def test_the_location_of_another_query_is_told_once(
    checkpoint: Checkpoint, log: CheckpointLog, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.offer(7)
    checkpoint.finish(7)
    log.confirm(manifest(7))
    assert not caplog.text
    log.confirm(manifest(8))
    log.confirm(manifest(9))
    assert caplog.text.count("does not hold the batch that Spark has just finished") == 1


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file:{}/"])
def test_uris_of_this_machine(checkpoint: Checkpoint, form: str) -> None:
    log = CheckpointLog(form.format(str(checkpoint.folder).replace(" ", "%20")))
    checkpoint.offer(7)
    checkpoint.finish(7)
    assert log.is_finished(manifest(7))


@pytest.mark.parametrize("name", ["a%20b", "hour=10%3A00"])
def test_a_percent_sign_is_a_part_of_a_name(tmp_path: Path, name: str) -> None:
    """Spark takes the option as it is, so the directory of that very name is the checkpoint's."""
    for folder in (name, "a b"):
        (tmp_path / folder).mkdir()
    assert local_folder(f"file:{tmp_path}/{name}") == tmp_path / name
    assert pyarrow.fs.FileSystem.from_uri(arrow_uri(f"file://{tmp_path}/{name}"))[1] == str(
        tmp_path / name
    )


def test_a_store_that_pyarrow_reads(checkpoint: Checkpoint) -> None:
    """Object stores answer like this one, as far as what is there goes."""
    store = ArrowStore(pyarrow.fs.LocalFileSystem(), str(checkpoint.folder))
    assert store.names("nothing") == []
    assert store.text("offsets/7") is None
    checkpoint.offer(7)
    assert store.names("offsets") == ["7"]
    assert store.text("offsets/7") == (checkpoint.folder / "offsets/7").read_text()


@pytest.mark.parametrize("location", ["dbfs:/x", "nowhere://bucket/x"])
def test_an_unknown_scheme_is_refused(location: str) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be opened here: .*remove the source's"):
        CheckpointLog(location)


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be read"):
        CheckpointLog(str(tmp_path)).is_finished(manifest(0))
