"""Planted secrets are nowhere while Spark reads and writes with them, executors included."""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pyspark
import pytest

from kohort.broker import EmbeddedBroker, Security
from tests.real_kafka.secured import token
from tests.spark.sessions import MARKS, small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS
ROWS = 20
USER, PASSWORD, CLIENT_SECRET = "alice", "planted-8f1d-password", "planted-77aa-client"
MODULES = "org.apache.kafka.common.security"
Options = dict[str, str]
Way = tuple[Options, list[str]]


@contextmanager
def broker(mechanism: str) -> Iterator[EmbeddedBroker]:
    if mechanism == "SSL":
        security = Security("SSL", client_certificates=True)
    else:
        security = Security("SASL_SSL", users={USER: PASSWORD}, mechanisms=[mechanism])
    with EmbeddedBroker(security=security) as started:
        yield started


@contextmanager
def certificate(server: EmbeddedBroker) -> Iterator[Way]:
    """A private key as the text of an option."""
    settings = server.client_settings()
    pem = Path(settings["ssl.key.location"]).read_text()
    end = "-----END CERTIFICATE-----\n"
    chain, _, key = pem.partition(end)
    yield (
        {
            "kafka.bootstrap.servers": settings["bootstrap.servers"],
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": settings["ssl.ca.location"],
            "kafka.ssl.keystore.certificate.chain": chain + end,
            "kafka.ssl.keystore.key": key,
        },
        [line for line in key.splitlines() if line and "-----" not in line],
    )


@contextmanager
def user(server: EmbeddedBroker) -> Iterator[Way]:
    """A password as an option."""
    settings = server.client_settings()
    yield {f"kafka.{name}": value for name, value in settings.items()}, [PASSWORD]


@contextmanager
def jaas(server: EmbeddedBroker) -> Iterator[Way]:
    """A password inside of the text that Java's clients take."""
    settings = server.java_settings()
    yield {f"kafka.{name}": value for name, value in settings.items()}, [PASSWORD]


@contextmanager
def client_credentials(server: EmbeddedBroker) -> Iterator[Way]:
    """A secret for an endpoint, and the tokens that it gives."""
    made = [token()]

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            data = json.dumps({"access_token": made[0], "expires_in": 3_600}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    settings = server.client_settings()
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever)
        thread.start()
        yield (
            {
                "kafka.bootstrap.servers": settings["bootstrap.servers"],
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.ca.location": settings["ssl.ca.location"],
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauthbearer.token.endpoint.url": (
                    f"http://127.0.0.1:{endpoint.server_port}/token"
                ),
                "kafka.sasl.jaas.config": (
                    f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
                    f' clientId="me" clientSecret="{CLIENT_SECRET}";'
                ),
            },
            [CLIENT_SECRET, made[0].split(".")[1]],
        )
        endpoint.shutdown()
        thread.join(60)


WAYS: dict[str, tuple[str, Callable[[EmbeddedBroker], Any]]] = {
    "certificate": ("SSL", certificate),
    "PLAIN": ("PLAIN", user),
    "SCRAM-SHA-256": ("SCRAM-SHA-256", jaas),
    "SCRAM-SHA-512": ("SCRAM-SHA-512", user),
    "OAUTHBEARER": ("OAUTHBEARER", client_credentials),
}


class Processes:
    """What `ps` shows of this process and those that it has started, looked at again and again."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for each in psutil.Process().children(recursive=True):
                try:
                    self.seen.add(f"{' '.join(each.cmdline())} {each.environ()}")
                except psutil.Error:
                    continue  # it has ended


def use(spark: SparkSession, options: Options, folder: Path) -> Iterator[tuple[str, str]]:
    """Write and read; yield the texts that Spark shows of it, and where."""
    topic = folder.name
    rows = spark.range(ROWS).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format("kohort").options(**options, topic=topic).mode("append").save()
    reading = {**options, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("kohort").options(**reading).load()
    assert frame.count() == ROWS
    frame.createOrReplaceTempView("records")
    plan: Any = frame
    yield "plan", plan._jdf.queryExecution().toString()
    yield "plan", spark.sql("explain extended select * from records").collect()[0][0]
    yield "frame", repr(frame)


def stream(spark: SparkSession, options: Options, folder: Path) -> Iterator[tuple[str, str]]:
    """Copy the topic by a query; yield the texts that Spark shows of it, and where."""
    topic = folder.name
    reading = {**options, "subscribe": topic, "startingOffsets": "earliest"}
    streamed = {**reading, "kafka.group.id": topic}
    rows = spark.readStream.format("kohort").options(**streamed).load()
    query = (
        rows.select("key", "value")
        .writeStream.format("kohort")
        .options(**options, topic=f"{topic}-copy")
        .queryName(topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running: Any = query
    assert query.awaitTermination(600)
    yield "progress", str(query.recentProgress)
    yield "streaming plan", running._jsq.explainInternal(True)
    assert query.exception() is None
    copied = {**reading, "subscribe": f"{topic}-copy"}
    assert spark.read.format("kohort").options(**copied).load().count() == ROWS


def failing(spark: SparkSession, options: Options, folder: Path) -> Iterator[tuple[str, str]]:
    """What is raised when a broker refuses a password."""
    wrong = {**options, "subscribe": folder.name, "kafka.sasl.username": "mallory"}
    with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as caught:
        spark.read.format("kohort").options(**wrong).load().count()
    yield "exception", str(caught.getrepr(style="long"))


# What only some of them do: a query starts a process that has 10 s to begin, see `small_session`.
MORE: dict[str, tuple[Callable[..., Iterator[tuple[str, str]]], ...]] = {
    "certificate": (stream,),
    "PLAIN": (failing,),
    "SCRAM-SHA-256": (stream,),
    "SCRAM-SHA-512": (failing,),
}


def pages(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """What the user interface shows."""
    root = spark.sparkContext.uiWebUrl
    assert root is not None
    application = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    wanted = ["/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/"]
    wanted += ["/StreamingQuery/", f"{application}/sql?details=true&length=1000"]
    wanted += [f"{application}/environment", f"{application}/jobs", f"{application}/stages"]
    listed = json.loads(page(f"{root}{application}/sql?details=false&length=1000"))
    assert listed
    wanted += [f"/SQL/execution/?id={each['id']}" for each in listed]
    for path in wanted:
        yield f"page {path}", page(root + path)


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def files(*folders: Path) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes().decode(errors="replace")


# each way starts a dozen processes, on a machine that is busy
@pytest.mark.timeout(1_500)
def test_secrets_are_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kohort")
    events = tmp_path / "events"
    events.mkdir()
    secrets: list[str] = []
    texts: list[tuple[str, str]] = []
    settings = {
        "spark__master": "local-cluster[2,1,1024]",
        "spark__executor__memory": "512m",
        "spark__ui__enabled": "true",
        "spark__ui__port": "0",
        "spark__eventLog__enabled": "true",
        "spark__eventLog__dir": events.as_uri(),
    }
    with small_session(**settings) as spark:
        spark.sparkContext.setLogLevel("INFO")
        with Processes() as processes:
            for name, (mechanism, given) in WAYS.items():
                folder = tmp_path / f"by-{name}"
                folder.mkdir()
                with broker(mechanism) as server, given(server) as (options, planted):
                    for topic in (folder.name, f"{folder.name}-copy"):
                        server.create_topic(topic, 2)
                    secrets += planted
                    for does in (use, *MORE.get(name, ())):
                        found = does(spark, options, folder)
                        texts += [(f"{name}: {where}", text) for where, text in found]
        texts += pages(spark)
        application = spark.sparkContext.applicationId
    out, err = capfd.readouterr()
    texts += [("stdout", out), ("stderr", err), ("log", caplog.text)]
    texts += [("process", each) for each in processes.seen]
    work = Path(pyspark.__file__).parent / "work" / application
    texts += files(events, work, *tmp_path.glob("by-*/checkpoint"))

    # all of it was looked at
    assert any("CoarseGrainedExecutorBackend" in each for each in processes.seen)
    assert any("pyspark" in each and "daemon" in each for each in processes.seen)
    assert any("SparkListenerApplicationEnd" in text for _, text in files(events))
    assert [where for where, _ in files(work) if where.endswith("stderr")]
    assert "kafka.bootstrap.servers" in "".join(text for _, text in texts)
    shown = {(where, secret) for secret in secrets for where, text in texts if secret in text}
    assert sorted(shown) == []
