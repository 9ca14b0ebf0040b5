"""One Spark session for the tests of a module, and Spark's own Kafka connector to compare with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.spark import KohortDataSource, session_config
from tests.broker.processes import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CONNECTOR = Path(__file__).resolve().parents[2] / "build" / "spark-connector"

# What has not come by then is not coming: it takes seconds on a busy machine.
PATIENCE_S = 120

# Spark 4.3 gives the process of a streaming source 10 s to start and connect: a constant in
# `PythonWorkerFactory.createSimpleWorker`. No setting covers it: socketTimeout below counts from
# the connection on, and `StreamingPythonRunner` starts its process without the daemon, whatever
# `spark.python.use.daemon` says. A busy machine may not have them: start once more, no oftener.
NOT_STARTED = "Python worker failed to connect back"
TOO_BUSY = (
    f"{NOT_STARTED}, twice: Spark gives the process of a source 10 s to start, and it takes 1 s of"
    " a processor; run fewer processes beside this test, or look why the interpreter starts slowly"
)
# A query's status until its sources have started.
INITIALIZING = "Initializing sources"

# Arguments of `DataStreamWriter.trigger`.
TRIGGERS: dict[str, dict[str, Any]] = {
    "continuous": {"processingTime": "0 seconds"},
    "everySecond": {"processingTime": "1 second"},
    "availableNow": {"availableNow": True},
}

MARKS = [
    # the start of a JVM and of a query's processes, on a machine that does much else
    pytest.mark.timeout(400),
    # said by PySpark at every use
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # Py4J leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def session(**more: str) -> Iterator[SparkSession]:
    """Start a session, and end its JVM; `__` in the settings' names stands for a dot."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kohort-tests").master("local[2]")
    settings = {
        **session_config(extra_java_options="-XX:+UseSerialGC"),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # a client that still calls a dead broker must not reach a port that Spark listens on
        "spark.python.unix.domain.socket.enabled": "true",
        # a worker may take long to start beside others
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.shuffle.partitions": "1",
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    found.dataSource.register(KohortDataSource)
    with starting_again():
        yield found
    gateway: Any = SparkContext._gateway
    found.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


small_session = contextmanager(session)


@contextmanager
def starting_again() -> Iterator[None]:
    """Have a query started once more whose source's process had no time to start."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    plain = DataStreamWriter.start

    def start(writer: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        query = plain(writer, *args, **options)
        if was_not_started(query):
            query = plain(writer, *args, **options)
            assert not was_not_started(query), TOO_BUSY
        return query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start)
        yield


def was_not_started(query: StreamingQuery) -> bool:
    """Whether Spark did not wait long enough for the process of a query's source."""
    until(lambda: not query.isActive or query.status["message"] != INITIALIZING, "sources")
    failure = query.exception()
    return failure is not None and NOT_STARTED in str(failure)


def until(condition: Callable[[], bool], what: str) -> None:
    """Look now and then: without a pause this takes the processor from what it waits for."""
    pause = threading.Event()

    def look() -> bool:
        return condition() or pause.wait(0.05)

    eventually(look, what, PATIENCE_S)


def connector_jars() -> str:
    """The jars of Spark's own connector, as Spark's setting `spark.jars` wants them."""
    jars = sorted(CONNECTOR.glob("*.jar"))
    assert jars, f"no jars in {CONNECTOR}: make test fetches them"
    return ",".join(str(jar) for jar in jars)
