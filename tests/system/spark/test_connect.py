"""The examples of Spark Connect and of a declarative pipeline, each in processes of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient
from tests.spark.playing import produce

EXAMPLES = Path(__file__).parents[3] / "examples"
CONFIGURATION = """
spark.driver.memory 1g
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
spark.python.authenticate.socketTimeout 120s
spark.sql.shuffle.partitions 1
"""

pytestmark = pytest.mark.timeout(500)  # other tests may have the processors


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with a topic `flights`: three records and two."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("flights", 2)
        produce(broker.bootstrap_servers, "flights", {0: 3, 1: 2})
        yield broker.bootstrap_servers


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a program of Spark's in a folder, and return all that it prints."""
    settings = folder / "settings"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(CONFIGURATION)
    environment = {
        **os.environ,
        **variables,
        "SPARK_CONF_DIR": str(settings),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def offsets_of(bootstrap: str, group: str) -> dict[int, int]:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = admin.list_group_offsets(group)
    return {place.partition: position.offset for place, position in found.items()}


def test_a_stream_through_connect(flights: str, tmp_path: Path) -> None:
    printed = run([sys.executable, str(EXAMPLES / "spark_connect.py"), flights], tmp_path)
    lines = re.findall(r"^[0-9] [0-9] value [0-9]$", printed, re.MULTILINE)
    assert lines == [
        f"{p} {o} value {o}" for p, count in {0: 3, 1: 2}.items() for o in range(count)
    ]
    assert offsets_of(flights, "flights-by-connect") == {0: 3, 1: 2}


def test_a_declarative_pipeline(flights: str, tmp_path: Path) -> None:
    """The tables are in the catalogue, and the group knows what was read."""
    home = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "spark_pipeline", home)
    spec = home / "spark-pipeline.yml"
    given = "file:///tmp/flights-pipeline"
    assert given in spec.read_text()
    spec.write_text(spec.read_text().replace(given, (tmp_path / "storage").as_uri()))
    run(["spark-pipelines", "run"], home, KAFKA_BOOTSTRAP_SERVERS=flights)
    assert offsets_of(flights, "flights-pipeline") == {0: 3, 1: 2}
    assert list(home.glob("spark-warehouse/flights/*.parquet"))
