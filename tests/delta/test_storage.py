from __future__ import annotations

from pathlib import Path

import pytest

from kohort.delta.append import TableAppend
from kohort.delta.storage import table_storage


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        ("dbfs:/x", "use /dbfs/"),
        ("dbfs://x/y", "use /dbfs/"),
        ("DBFS:/x", "use /dbfs/"),
        ("hdfs://name/x", "HDFS is mounted"),
        ("s3n://bucket/x", "use s3://"),
        ("wasbs://c@a.blob.core.windows.net/x", "use abfss://"),
        ("memory:///x", "shared directory"),
        ("ftp://host/x", "./ftp://host/x"),
        ("flights:2026", "./flights:2026"),
        ("s3:/bucket/x", "names no bucket"),
        ("s3:bucket/x", "names no bucket"),
        ("file://elsewhere/x", "file:///shared/table"),
        ("file:x", "file:///shared/table"),
        ("", "empty"),
    ],
)
def test_a_place_that_is_not_supported_is_refused_with_a_remedy(
    table: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=remedy):
        TableAppend(table, "g")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ("/shared/table", "/shared/table"),
        ("file:///shared/my%20table", "/shared/my table"),
        ("file:/shared/table", "/shared/table"),
        ("file://localhost/shared/table", "/shared/table"),
        (Path("/shared/dbfs:/x"), "/shared/dbfs:/x"),
        ("/shared/dbfs:/x", "/shared/dbfs:/x"),
        ("s3://bucket/table", "s3://bucket/table"),
        ("abfss://container@account.dfs.core.windows.net/t",
         "abfss://container@account.dfs.core.windows.net/t"),
        ("gs://bucket/table", "gs://bucket/table"),
    ],
)  # fmt: skip
def test_places_that_are_supported(table: str | Path, place: str) -> None:
    storage = table_storage(table)
    assert storage.uri == place
    assert storage.is_local == place.startswith("/")


def test_a_relative_directory_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert table_storage("./a:b/c").uri == str(tmp_path / "a:b" / "c")


@pytest.mark.parametrize("name", ["allow_unsafe_rename", "AWS_S3_ALLOW_UNSAFE_RENAME"])
def test_commits_that_can_overwrite_each_other_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="overwrite each other"):
        TableAppend("s3://bucket/table", "g", storage_options={name: "true"})
    TableAppend("s3://bucket/table", "g", storage_options={name: "false"})
