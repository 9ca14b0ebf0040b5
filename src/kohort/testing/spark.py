"""A Spark session for tests; needs the extra `spark` and Java."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.extras import check_packages
from kohort.testing.harness_clients import HarnessError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Yield a local session with the source; an active session is reused and not stopped.

    Raises:
        MissingExtraError: PySpark is not installed.
        HarnessError: There is no Java.
    """
    check_packages("the fixture kohort_spark", "spark", ["pyspark"])
    if not _has_java():
        raise HarnessError(
            "the fixture kohort_spark needs Java 17 or newer: install it, and set JAVA_HOME"
            " or PATH to it"
        )
    from pyspark.sql import SparkSession

    from kohort.spark import KohortDataSource, install

    there = SparkSession.getActiveSession()
    spark = there or _started()
    spark.dataSource.register(KohortDataSource)
    install(spark)
    try:
        yield spark
    finally:
        if there is None:
            spark.stop()


def _started() -> SparkSession:
    from pyspark.sql import SparkSession

    from kohort.spark import session_config

    builder = SparkSession.builder.appName("kohort-tests").master("local[2]")
    for name, value in {**session_config(), **_SETTINGS}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java").exists() if home else shutil.which("java") is not None
