"""A real Apache Kafka for tests: one combined KRaft node from Maven's artifacts, ready in 3 s.

`make test` fetches the jars (tools/install.py). Settings differ from Kafka's defaults only where a
test would otherwise wait: see SETTINGS.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

KAFKA_LIBS = Path(__file__).resolve().parents[2] / "build" / "kafka-libs"
CLUSTER_ID = "kohortRealKafkaTestsAA"
READY_LINE = b"Kafka Server started"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_PORTS = range(20_000, 32_000)

# Start-up matters to a test, throughput does not; a benchmark passes its own.
FAST_START = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    # one node holds the only copy of everything
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # a test never waits for members that do not come
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    # a killed node may come back once its old session is over
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # the cleaner's default buffer of 128 MiB is for brokers with many partitions
    "log.cleaner.dedupe.buffer.size": "2097152",
}


class RealKafka:
    """One Apache Kafka node on loopback, as a context manager.

    Attributes:
        bootstrap_servers: where it listens, `127.0.0.1:port`; a restart keeps it.
        addresses: where its other listeners are, by their names.
        controller: the cluster's controller, `node@127.0.0.1:port`.
        log_dir: its data; a partition's segments are in `log_dir/<topic>-<partition>`.
        output: what it printed, over all its starts.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = FAST_START,
        node_id: int = 1,
        controller: str | None = None,
        listeners: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        """Write the settings; `settings` are by Kafka's names and win over SETTINGS.

        Args:
            folder: holds settings, data and output; made when it is not there.
            settings: broker settings.
            jvm_options: options of the Java command.
            node_id: which node of its cluster it is.
            controller: the cluster's controller, of which it becomes a broker; it is its own if
                there is none.
            listeners: listeners beside the one without security, by name, and their protocols.
            format_options: options for `kafka-storage format`.
        """
        self.log_dir = folder / "log"
        self.output = folder / "kafka.out"
        self._jvm_options = jvm_options
        self._node_id = node_id
        self._cluster = controller
        self._settings = settings or {}
        self._listeners = listeners or {}
        self._format_options = format_options
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._choose_ports()

    def _choose_ports(self) -> None:
        port, controller_port, *others = free_ports(2 + len(self._listeners))
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self.controller = self._cluster or f"{self._node_id}@127.0.0.1:{controller_port}"
        self.addresses = {
            name: f"localhost:{other}" for name, other in zip(self._listeners, others, strict=True)
        }
        more = [f"{name}://{address}" for name, address in self.addresses.items()]
        listener = ",".join((f"PLAINTEXT://{self.bootstrap_servers}", *more))
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **self._listeners}
        both = f"{listener},CONTROLLER://127.0.0.1:{controller_port}"
        addresses = {
            "node.id": str(self._node_id),
            "process.roles": "broker" if self._cluster else "broker,controller",
            "listeners": listener if self._cluster else both,
            "advertised.listeners": listener,
            "controller.quorum.voters": self.controller,
            "log.dirs": str(self.log_dir),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
        }
        lines = {**SETTINGS, **addresses, **self._settings}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def __enter__(self) -> Self:
        self._format()
        try:
            self.start()
        except RuntimeError:
            if "BindException" not in self.output.read_text():
                raise
            self._choose_ports()  # another test run has taken one of them meanwhile
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Id of its process while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the node and return once it serves; RuntimeError with its output if it does not."""
        process = subprocess.Popen(
            java_command("kafka.Kafka", str(self._properties), jvm_options=self._jvm_options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.output.parent,
        )
        self._process = process
        self._is_ready = False
        settled = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process, settled), daemon=True)
        self._reader.start()
        settled.wait(READY_TIMEOUT_S)
        if not self._is_ready:
            self.kill()
            raise RuntimeError(f"Kafka did not start:\n{self.output.read_text()[-4000:]}")

    def stop(self) -> None:
        """Shut the node down in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the node at once, as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Shut down in order and start again on the same log and port."""
        self.stop()
        self.start()

    def run_tool(self, main_class: str, *arguments: str) -> str:
        """Run a command line tool of Kafka's by its Java class; what it prints, or RuntimeError."""
        command = java_command(main_class, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{main_class} {arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def dump_log(self, topic: str, partition: int, *options: str) -> str:
        """A partition's segments as Kafka's own DumpLogSegments reads them."""
        segments = sorted((self.log_dir / f"{topic}-{partition}").glob("*.log"))
        files = ",".join(str(segment) for segment in segments)
        return self.run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", files, *options)

    def _format(self) -> None:
        options = ["-t", CLUSTER_ID, "-c", str(self._properties), "--ignore-formatted"]
        options += self._format_options
        self.run_tool("kafka.tools.StorageTool", "format", *options)

    def _read(self, process: subprocess.Popen[bytes], settled: threading.Event) -> None:
        """Keep what the node prints; settled is set at the ready line, or at its end."""
        assert process.stdout is not None
        with process.stdout, self.output.open("ab") as output:
            for line in process.stdout:
                output.write(line)
                output.flush()
                if READY_LINE in line:
                    self._is_ready = True
                    settled.set()
        settled.set()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(STOP_TIMEOUT_S)
        self._reader.join(STOP_TIMEOUT_S)
        self._process = None


def java_command(
    main_class: str, *arguments: str, jvm_options: Sequence[str] = FAST_START
) -> list[str]:
    """The command line that runs a class of Kafka's jars."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    return [java, *jvm_options, "-cp", f"{KAFKA_LIBS}/*", main_class, *arguments]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago, all different.

    They are below those that the kernel gives to outgoing connections, of which other tests make
    many in the seconds that a broker takes to listen; where to look is left to chance, because
    several test runs look at once.
    """
    start = secrets.randbelow(_PORTS.stop - _PORTS.start)
    found: list[int] = []
    for port in (*_PORTS[start:], *_PORTS[:start]):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found
