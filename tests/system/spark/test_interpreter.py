"""The source in a session whose `python3` on the PATH cannot run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.spark.playing import produce

pytestmark = pytest.mark.timeout(400)  # the start of a JVM, on a machine that does much else

SESSION = """
import sys
from pyspark.sql import SparkSession

settings = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.python.authenticate.socketTimeout": "120s",
}

def session():
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
"""
REGISTERED = """
spark = session()
from kohort.spark import KohortDataSource
spark.dataSource.register(KohortDataSource)
"""
FOUND_BY_NAME = """
import kohort.spark
kohort.spark.configure()
spark = session()
"""
READ = """
reader = spark.read.format("kohort").option("kafka.bootstrap.servers", sys.argv[1])
rows = reader.option("subscribe", "flights").load().collect()
print("read", sorted(row.value.decode() for row in rows))
writer = spark.createDataFrame([("late",)], "value string").write.format("kohort")
writer = writer.option("kafka.bootstrap.servers", sys.argv[1]).option("topic", "flights")
writer.mode("append").save()
print("then", reader.option("subscribe", "flights").load().count())
spark.stop()
"""


@pytest.fixture
def flights(tmp_path: Path) -> Iterator[str]:
    """The address of a broker with a topic `flights` of three records."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        broker.create_topic("flights", 1)
        produce(broker.bootstrap_servers, "flights", {0: 3})
        yield broker.bootstrap_servers


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with another `python3` on the PATH, and without PYSPARK_PYTHON."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho the python3 of the PATH >&2\nexit 1\n")
    python.chmod(0o755)
    found = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    found.pop("PYSPARK_PYTHON", None)
    return found


@pytest.mark.parametrize("way", [REGISTERED, FOUND_BY_NAME], ids=["registered", "found-by-name"])
def test_the_source_runs_with_the_interpreter_of_the_program(
    way: str, flights: str, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SESSION + way + READ, flights],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "read ['value 0', 'value 1', 'value 2']" in done.stdout
    assert "then 4" in done.stdout


AGAIN = """
import kohort.spark
session().stop()
before = kohort.spark.session_config()
print(before["spark.driver.extraJavaOptions"])
"""


def test_a_session_config_after_a_session_says_that_the_jvm_stays(
    environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SESSION + AGAIN],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "-Xss8m"
    assert "Spark's JVM already runs in this process, without -Xss8m" in done.stderr
