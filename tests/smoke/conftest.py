"""One Spark session, members that all leave in the end, and the fixtures of `tests/spark`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import bootstrap, keep_signals, temporary_files, topic
from tests.spark.sessions import small_session
from tests.system.clients.conftest import driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bootstrap", "driver", "keep_signals", "temporary_files", "topic"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests of a file share; its tables are in a folder of its own."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    with small_session(spark__sql__warehouse__dir=warehouse) as session:
        yield session
