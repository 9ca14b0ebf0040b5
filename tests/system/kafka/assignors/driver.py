"""Kafka's own assignors, run on our cases in one Java process (AssignorDriver.java)."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from kohort.group.assignors import ClusterView, RackedClusterView, Subscription
from kohort.types import TopicPartition
from tests.real_kafka.broker import FAST_START, KAFKA_LIBS

SOURCE = Path(__file__).with_name("AssignorDriver.java")
MAIN_CLASS = "AssignorDriver"


class JavaError(Exception):
    """The assignor raised."""


class JavaAssignors:
    """A Java process that answers one group after the other, as a context manager.

    Attributes:
        seconds: How long the last answer took, the median of its rounds.
    """

    def __init__(self, folder: Path, jvm_options: Sequence[str] = FAST_START) -> None:
        """Compile the driver; it needs a JDK.

        Args:
            folder: Where the class goes.
            jvm_options: Options of the Java command.
        """
        self.seconds = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        libraries = f"{KAFKA_LIBS}/*"
        subprocess.run([tool("javac"), "-cp", libraries, "-d", folder, SOURCE], check=True)
        self._command = [
            *(tool("java"), *jvm_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
            *("-cp", f"{folder}:{libraries}", MAIN_CLASS),
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def assign(
        self,
        name: str,
        cluster: ClusterView,
        subscriptions: Mapping[str, Subscription],
        rounds: int = 1,
    ) -> dict[str, set[TopicPartition]]:
        """Return what an assignor of Kafka's gives to each member.

        Args:
            name: The assignor, those of the coordinator as `server-uniform` and `server-range`.
            cluster: The topics.
            subscriptions: The members; topics that do not exist are left out for the coordinator's
                assignors, whose callers leave them out.
            rounds: How often it is run.

        Raises:
            JavaError: The assignor raises.
        """
        assert self._process.stdin is not None
        topics = sorted(topic for topic, count in cluster.partitions.items() if count)
        if not name.startswith("server"):
            unknown = {t for s in subscriptions.values() for t in s.topics} - set(topics)
            unknown |= {p.topic for s in subscriptions.values() for p in s.owned} - set(topics)
            topics += sorted(unknown)
        lines = [f"assign {name} {len(topics)} {len(subscriptions)} {rounds}"]
        lines += [_topic_line(cluster, topic) for topic in topics]
        numbers = {topic: number for number, topic in enumerate(topics)}
        for member, entry in subscriptions.items():
            lines += _member_lines(member, entry, numbers)
        self._process.stdin.write("\n".join(lines) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return {member: answer.get(member, set()) for member in subscriptions}

    def _answer(self) -> dict[str, set[TopicPartition]]:
        assert self._process.stdout is not None
        answer: dict[str, set[TopicPartition]] = {}
        for line in self._process.stdout:
            first, *words = line.split()
            if first == "done":
                return answer
            if first == "error":
                raise JavaError(line)
            if first == "nanoseconds":
                self.seconds = int(words[0]) / 1e9
                continue
            answer[first] = {
                TopicPartition(topic, int(number))
                for topic, numbers in (word.split(":") for word in words)
                for number in numbers.split(",")
            }
        raise RuntimeError("the Java process has ended")


def tool(name: str) -> str:
    """The path of a command of the JDK."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def _topic_line(cluster: ClusterView, topic: str) -> str:
    racks = cluster.racks.get(topic, ()) if isinstance(cluster, RackedClusterView) else ()
    where = [",".join(sorted(each)) or "-" for each in racks]
    return " ".join([topic, str(cluster.partitions.get(topic, 0)), *where])


def _member_lines(member: str, entry: Subscription, numbers: Mapping[str, int]) -> list[str]:
    wanted = [str(numbers[topic]) for topic in sorted(entry.topics) if topic in numbers]
    owned: defaultdict[int, list[int]] = defaultdict(list)
    for topic, number in sorted(entry.owned):
        if topic in numbers:
            owned[numbers[topic]].append(number)
    data = entry.user_data.hex() if entry.user_data else "-"
    return [
        f"{member} {entry.group_instance_id or '-'} {entry.rack_id or '-'} {entry.generation}",
        " ".join(wanted) or "-",
        " ".join(f"{topic}:{_ranges(some)}" for topic, some in owned.items()) or "-",
        data,
    ]


def _ranges(numbers: Iterable[int]) -> str:
    """Write ascending numbers as ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" for first, last in ranges)
