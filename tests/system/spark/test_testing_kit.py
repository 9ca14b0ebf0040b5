"""The fixture kohort_spark, and a Spark job that is tested with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.sessions import Bug, assert_found

COUNTS_TWICE = Bug(
    "test_spark.py",
    'f"batch-{batch}"',
    'f"batch-{len(list(self._folder.iterdir()))}"',
    "test_a_batch_that_comes_again_counts_once",
)


@pytest.mark.timeout(900)
def test_a_spark_job(tmp_path: Path) -> None:
    assert_found(tmp_path, COUNTS_TWICE, timeout_s=400)
