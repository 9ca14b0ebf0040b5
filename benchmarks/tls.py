"""TLS: `poll_arrow` compared with a raw `ssl` socket and Java, and 1,000 SCRAM connections.

All read the same topic of a real Kafka over the same TLS listener. The raw socket sends ready-made
fetches that cover the topic, two ahead, and discards the responses. Java's side is Kafka's own
`ConsumerPerformance`, which measures itself without its start. Then one process opens 1,000
connections that authenticate with SCRAM-SHA-256 over TLS and stay open, to Kafka and to our broker.

    python benchmarks/tls.py [--records N] [--partitions N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness, poll_arrow  # noqa: E402  # found only after the line above
from kohort.cli.command_config import read_command_config  # noqa: E402  # as above
from kohort.client.config.definitions import ConsumerConfig, make_from_kafka  # noqa: E402  # as above
from kohort.client.net.connecting import connect  # noqa: E402  # as above
from kohort.client.net.connection import Connection  # noqa: E402  # as above
from kohort.client.net.security.context import security_of  # noqa: E402  # as above
from kohort.client.net.transport import BrokerConnection  # noqa: E402  # as above
from kohort.wire.codec import frame  # noqa: E402  # as above
from kohort.wire.codec.schema import Buffer  # noqa: E402  # as above
from kohort.wire.messages.fetch import (  # noqa: E402  # as above
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from tests.broker.peer import FETCH_BY_NAME, Peer  # noqa: E402  # as above
from tests.real_kafka.secured import SecuredKafka  # noqa: E402  # as above

OURS, RAW, JAVA = "kohort poll_arrow", "raw ssl socket", "Java ConsumerPerformance"
OF_RAW, SCRAM_S = 0.8, 10.0
CONNECTIONS = 1_000
# Number of connections that are opened at a time.
AT_ONCE = 100
AHEAD = 2
PARTITION_BYTES, FETCH_BYTES = 1024 * 1024, 50 * 1024 * 1024
# Fields of a record batch: its length, and the offset of its last record relative to its first.
_LENGTH_AT, _LAST_AT, _BATCH_HEAD = 8, 23, 12


def fetches(bootstrap: str, partitions: int, records: int) -> list[bytearray]:
    """Return the requests with which a consumer would read the whole topic."""
    offsets = dict.fromkeys(range(partitions), 0)
    found: list[bytearray] = []
    with Peer(bootstrap) as peer:
        while sum(offsets.values()) < records:
            request = _fetch(offsets)
            found.append(frame.encode_request(request, FETCH_BY_NAME, len(found), "raw"))
            for each in peer.ask(request, FETCH_BY_NAME).responses[0].partitions:
                offsets[each.partition_index] = _end(each.records, offsets[each.partition_index])
    return found


def _fetch(offsets: dict[int, int]) -> FetchRequest:
    wanted = tuple(
        FetchPartition(partition=number, fetch_offset=at, partition_max_bytes=PARTITION_BYTES)
        for number, at in offsets.items()
    )
    topic = FetchTopic(topic=poll_arrow.TOPIC, partitions=wanted)
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=(topic,))


def _end(records: Buffer | None, end: int) -> int:
    data, at = memoryview(records or b""), 0
    while at + _LAST_AT + 4 <= len(data):
        (base,) = struct.unpack_from(">q", data, at)
        (last,) = struct.unpack_from(">i", data, at + _LAST_AT)
        (length,) = struct.unpack_from(">i", data, at + _LENGTH_AT)
        at += _BATCH_HEAD + length
        if at <= len(data):
            end = base + last + 1
    return end


def raw(address: str, context: ssl.SSLContext, requests: list[bytearray]) -> int:
    """Send the fetches and discard the responses; return their number of bytes."""
    host, _, port = address.rpartition(":")
    buffer = memoryview(bytearray(FETCH_BYTES))
    total = 0
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        for request in requests[:AHEAD]:
            encrypted.sendall(request)
        for number in range(len(requests)):
            _receive(encrypted, buffer[:4])
            (length,) = struct.unpack_from(">i", buffer)
            _receive(encrypted, buffer[:length])
            total += length
            for request in requests[number + AHEAD : number + AHEAD + 1]:
                encrypted.sendall(request)
    return total


def _receive(source: ssl.SSLSocket, view: memoryview) -> None:
    while view:
        count = source.recv_into(view)
        if not count:
            raise SystemExit("the broker closed the connection")
        view = view[count:]


# --------------------------------------------------------------------------- authentication


def authenticated(settings: dict[str, Any]) -> float:
    """Return the seconds until all `CONNECTIONS` have authenticated."""
    return asyncio.run(_authenticated(settings))


async def _authenticated(settings: dict[str, Any]) -> float:
    config = make_from_kafka(ConsumerConfig, settings)
    security = security_of(config)
    host, _, port = settings["bootstrap.servers"].rpartition(":")
    turn = asyncio.Semaphore(AT_ONCE)

    async def one() -> BrokerConnection:
        async with turn:
            machine = Connection(client_id="tls", authenticator=security.authenticator)
            return await connect(host, int(port), machine, 60, security=security)

    start = time.perf_counter()
    made = await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - start
    for connection in made:
        connection.close()
    return seconds


@contextmanager
def embedded_broker(folder: Path) -> Iterator[dict[str, str]]:
    """Run our broker as a process; yields the settings of a client."""
    folder.mkdir()
    (folder / "security.toml").write_text(
        'protocol = "SASL_SSL"\nmechanisms = ["SCRAM-SHA-256"]\n[users]\nalice = "alice-secret"\n'
    )
    command = [sys.executable, "-m", "kohort.broker", "--data", str(folder / "data")]
    command += ["--security", str(folder / "security.toml"), "--client-files", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield read_command_config(folder / "alice.properties")
        finally:
            process.terminate()


def _check_raw(least: int) -> harness.Check:
    def check(answer: object) -> None:
        assert isinstance(answer, int)
        if answer < least:
            raise AssertionError(f"the raw socket read {answer} bytes")

    return check


def sides(kafka: SecuredKafka, folder: Path, options: argparse.Namespace) -> list[harness.Side]:
    """Return the sides that read the topic."""
    records, value_bytes = options.records, options.records * poll_arrow.VALUE_BYTES
    requests = fetches(kafka.bootstrap_servers, options.partitions, records)
    context = ssl.create_default_context(cafile=str(kafka.authority.ca))
    address = kafka.addresses["SSL"]
    properties = folder / "java.properties"
    properties.write_text(
        "auto.offset.reset=earliest\nenable.auto.commit=false\nsecurity.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.authority.ca}\n"
    )
    everything = poll_arrow.expect(poll_arrow.Total(records, value_bytes))
    return [
        harness.Side(
            OURS, lambda: poll_arrow.ours(records, **kafka.settings("SSL")), records, everything
        ),
        harness.Side(
            RAW, lambda: raw(address, context, requests), records, _check_raw(value_bytes)
        ),
        harness.Side(
            JAVA,
            lambda: poll_arrow.java(address, records, properties),
            records,
            poll_arrow.check_java(records),
            poll_arrow.java_seconds,
        ),
    ]


def run(options: argparse.Namespace, folder: Path) -> harness.Result:
    """Measure all sides."""
    with SecuredKafka(folder / "kafka", poll_arrow.THROUGHPUT_JVM) as kafka:
        poll_arrow.fill(kafka.bootstrap_servers, options.records, options.partitions)
        result = harness.measure(sides(kafka, folder, options), options.rounds, "records")
        user = kafka.as_user("SASL_SSL", "SCRAM-SHA-256")
        dotted = {name.replace("_", "."): value for name, value in user.items()}
        theirs = authenticated(dotted)
    with embedded_broker(folder / "embedded") as settings:
        embedded = authenticated(settings)
    result.expect("share of the raw socket", result.ratio(OURS, RAW), OF_RAW)
    result.note(f"times {JAVA}", result.ratio(OURS, JAVA))
    result.limit("s for 1,000 SCRAM, Apache Kafka", theirs, SCRAM_S)
    result.limit("s for 1,000 SCRAM, embedded", embedded, SCRAM_S)
    return result


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * CONNECTIONS), most))
    with tempfile.TemporaryDirectory() as folder:
        result = run(options, Path(folder))
    size = poll_arrow.VALUE_BYTES
    title = f"{options.records} records of {size} bytes in {options.partitions} partitions, TLS"
    return harness.report(title, result, options.json)


if __name__ == "__main__":
    sys.exit(main())
