"""The cost of a rebalance: the time during which no member gets the records of a partition.

32 partitions get 25 records per second each. Four members read them; then, repeatedly, one more
joins and one leaves, one is killed and another joins, and one is restarted. For each step there are
two figures, in milliseconds: the longest pause of a partition that stayed, the worst of all trials;
and the longest pause of one that moved, as the median and the range of the trials. Every client has
the same session timeout (6 s), heartbeat interval (1 s) and poll timeout (100 ms), on a real Kafka
and on the embedded broker. Kafka's own client, in Java, runs if a JDK and Kafka's jars are present;
the longer a process takes to start, the longer a restart takes.

How soon a killed member is missed depends on the age of its last heartbeat, and when the others
learn of it depends on when their heartbeats are due. So there are several trials, which begin at
times spread evenly over the heartbeat interval, counted from the last change of an owner, where
some clients begin their intervals. To get enough trials in the available time, three groups of the
same client run at once on the same topic; they change one after the other, because a starting
process takes a whole core.

    python benchmarks/rebalance.py [--client NAME ...] [--cycle NAME ...] [--rounds N]
                                   [--without-kafka] [--without-embedded] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple, Self

from confluent_kafka import Producer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from tests.broker.peer import Peer  # noqa: E402  # found only after the line above
from tests.broker.processes import BrokerProcess  # noqa: E402  # as above
from tests.real_kafka.broker import KAFKA_LIBS, RealKafka  # noqa: E402  # as above
from tests.system.kafka.assignors.driver import tool  # noqa: E402  # as above

MEMBER = Path(__file__).with_name("rebalance_member.py")
JAVA_MEMBER = Path(__file__).with_name("RebalanceMember.java")
# Twelve run at once, and their start should be fast.
JAVA_OPTIONS = (
    "-Xmx128m",
    "-Xshare:auto",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)
PARTITIONS = 32
PAUSE_S = 0.04
CALM_S = 2.0
# A topic of Apache Kafka stalls once, about two seconds after its creation, for every reader. Only
# the topic's age shows that this is over.
NEW_TOPIC_S = 4.0
START_S = 1.5
DEADLINE_S = 60.0
POLL_MS = 100.0
KINDS = (
    "kohort range",
    "kohort cooperative",
    "kohort consumer",
    "librdkafka range",
    "librdkafka cooperative",
    "librdkafka consumer",
    "kafka-python range",
    "kafka-python cooperative",
    "aiokafka range",
    "java range",
    "java cooperative",
    "java consumer",
)
HEARTBEAT_S = 1.0
GROUPS = 3
ROUNDS = 2
STEPS = ("join", "leave", "kill", "restart")
# Cycles after which a group has four members again.
CYCLES = {"join": ("join", "leave"), "kill": ("kill", "join"), "restart": ("restart",)}
KAFKA_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
EMBEDDED_SETTINGS = (
    "--set",
    "group.consumer.session.timeout.ms=6000",
    "--set",
    "group.consumer.heartbeat.interval.ms=1000",
)


# Number of groups that run at once.
_turn = threading.Lock()


class UnsettledError(Exception):
    """The members of a group did not settle on an assignment."""


class Pauses(NamedTuple):
    """The longest pauses of one trial, in ms: of partitions that stayed, and that moved."""

    stayed: float
    moved: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """A member got records of a partition."""

    at_ms: float
    member: int


class Member:
    """A consumer in a separate process; its reports go into `deliveries`."""

    def __init__(self, number: int, command: list[str], seen: Mapping[int, list[Delivery]]) -> None:
        """Start it."""
        self._number = number
        self._seen = seen
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at_ms, partition, _ = line.split()
            self._seen[int(partition)].append(Delivery(float(at_ms), self._number))

    def end(self, how: signal.Signals) -> None:
        """Stop it and wait for the end of its output, which is detected at once.

        `Popen.wait` only checks up to every 50 ms.
        """
        self.process.send_signal(how)
        self._thread.join(DEADLINE_S)
        self.process.wait(DEADLINE_S)


class Group:
    """The members of one group, and the records that they got."""

    def __init__(self, command: Sequence[str], servers: str, topic: str) -> None:
        """Create a group without members; `command` starts a member."""
        self._command = [*command, servers, f"group-{uuid.uuid4().hex}", topic]
        self._members: dict[int, Member] = {}
        self._started = 0
        self._settled_s = 0.0
        self.seen: dict[int, list[Delivery]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.end(signal.SIGKILL)

    def start(self) -> None:
        """Add a member."""
        self._started += 1
        self._members[self._started] = Member(self._started, self._command, self.seen)

    def end(self, how: signal.Signals) -> None:
        """End the oldest member."""
        oldest = min(self._members)
        self._members.pop(oldest).end(how)

    def settle(self) -> None:
        """Wait until, for a while, every partition is read by one member, and every member reads.

        Raises:
            UnsettledError: The group did not settle in time.
        """
        end = time.time() + DEADLINE_S
        owners: list[set[int]] = []
        while time.time() < end:
            time.sleep(0.1)
            since = (time.time() - CALM_S) * 1000
            recent = [_since(self.seen[number], since) for number in range(PARTITIONS)]
            owners = [{delivery.member for delivery in each} for each in recent]
            prompt = all(len(each) > CALM_S * 4 for each in recent)
            alone = all(len(each) == 1 for each in owners)
            if prompt and alone and set().union(*owners) == set(self._members):
                self._settled_s = max(map(_owned_since, self.seen.values())) / 1000
                return
        idle = set(self._members) - set().union(*owners)
        raise UnsettledError(
            f"the group did not settle; {sum(not each for each in owners)} "
            f"partitions are not read, {sum(len(each) > 1 for each in owners)} by several members, "
            f"{len(idle)} members read nothing"
        )

    def measure(self, change: Callable[[Group], None], phase_s: float) -> Pauses:
        """Make a change; return the longest pauses.

        Args:
            change: Makes the change.
            phase_s: When to make it: this long, plus a multiple of the heartbeat interval, after
                the last change of an owner.
        """
        with _turn:
            time.sleep((phase_s - (time.time() - self._settled_s)) % HEARTBEAT_S)
            begun = time.time() * 1000
            before = {number: self.seen[number][-1].member for number in range(PARTITIONS)}
            change(self)
            time.sleep(START_S)
        self.settle()
        stayed, moved = 0.0, 0.0
        for number, owner in before.items():
            deliveries = _since(self.seen[number], begun - 1_000)
            pauses = pairwise(deliveries)
            pause = max(after.at_ms - earlier.at_ms for earlier, after in pauses)
            if {delivery.member for delivery in deliveries} == {owner}:
                stayed = max(stayed, pause)
            else:
                moved = max(moved, pause)
        return Pauses(stayed, moved)

    def restart(self) -> None:
        """Restart the oldest member."""
        self.end(signal.SIGTERM)
        self.start()


def _owned_since(deliveries: Sequence[Delivery]) -> float:
    """Return when the current owner of a partition first got its records."""
    owner = deliveries[-1].member
    own = takewhile(lambda delivery: delivery.member == owner, reversed(deliveries))
    return min(delivery.at_ms for delivery in own)


def _since(deliveries: list[Delivery], at_ms: float) -> list[Delivery]:
    start = bisect_left(deliveries, at_ms, key=lambda delivery: delivery.at_ms)
    return deliveries[start:]


CHANGES: dict[str, Callable[[Group], None]] = {
    "join": Group.start,
    "leave": lambda group: group.end(signal.SIGTERM),
    "kill": lambda group: group.end(signal.SIGKILL),
    "restart": Group.restart,
}


class Source:
    """Produces to every partition at a steady pace, on a thread."""

    def __init__(self, servers: str, topic: str) -> None:
        """Prepare to start."""
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(PAUSE_S):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"record", partition=partition)
            self._producer.poll(0)
        self._producer.flush(DEADLINE_S)


Tries = dict[str, list[Pauses]]
Costs = dict[str, Tries]


def has_java() -> bool:
    """Return whether Kafka's own client can be compiled here."""
    return bool(shutil.which(tool("javac"))) and KAFKA_LIBS.exists()


def commands_of(kinds: Iterable[str], folder: Path) -> dict[str, list[str]]:
    """Return the command of each kind of member, without servers, group and topic.

    Args:
        kinds: The measured kinds.
        folder: Folder for the class of Kafka's own client, which is compiled if needed.
    """
    commands = {kind: [sys.executable, str(MEMBER), kind] for kind in kinds}
    java = [kind for kind in commands if kind.startswith("java ")]
    if java:
        libraries = f"{KAFKA_LIBS}/*"
        subprocess.run([tool("javac"), "-cp", libraries, "-d", folder, JAVA_MEMBER], check=True)
        program = [tool("java"), *JAVA_OPTIONS, "-cp", f"{folder}:{libraries}", JAVA_MEMBER.stem]
        commands.update({kind: [*program, kind] for kind in java})
    return commands


def tries(command: Sequence[str], servers: str, cycles: Sequence[str], rounds: int) -> Tries:
    """Run all steps with one kind of client on one broker."""
    topic = f"topic-{uuid.uuid4().hex}"
    with Peer(servers) as peer:
        peer.create(topic, PARTITIONS)
    steps = [step for cycle in cycles for step in CYCLES[cycle]]
    found: Tries = {step: [] for step in STEPS if step in steps}

    def run(number: int) -> None:
        with Group(command, servers, topic) as group:
            for _ in range(4):
                group.start()
            group.settle()
            for turn in range(rounds):
                phase_s = (turn * GROUPS + number + 0.5) / (rounds * GROUPS) * HEARTBEAT_S
                for step in steps:
                    found[step].append(group.measure(CHANGES[step], phase_s))

    with Source(servers, topic), ThreadPoolExecutor(GROUPS) as pool:
        time.sleep(NEW_TOPIC_S)
        list(pool.map(run, range(GROUPS)))
    return found


def costs_of(
    commands: Mapping[str, Sequence[str]], servers: str, cycles: Sequence[str], rounds: int
) -> tuple[Costs, dict[str, str]]:
    """Measure kinds of clients; return their costs, and the errors of those without any."""
    costs: Costs = {}
    unsettled: dict[str, str] = {}
    for kind, command in commands.items():
        print(f"{kind} ...", file=sys.stderr, flush=True)
        try:
            costs[kind] = tries(command, servers, cycles, rounds)
        except UnsettledError as error:
            unsettled[kind] = str(error)
    return costs, unsettled


def stayed(pauses: Sequence[Pauses]) -> float:
    """Return the longest pause of partitions that stayed, the worst of all trials."""
    return max(each.stayed for each in pauses)


def moved(pauses: Sequence[Pauses]) -> float:
    """Return the longest pause of partitions that moved, the median of all trials."""
    return statistics.median(each.moved for each in pauses)


def judge(found: Costs) -> list[str]:
    """Return every figure of ours that misses its target.

    Partitions that stay must not pause for longer than two polls, except with the eager protocol,
    which stops everything by design; those that move must wait no longer than with the best peer,
    give or take one poll.
    """
    missed = []
    for kind in (kind for kind in found if kind.startswith("kohort") and "range" not in kind):
        protocol = kind.rsplit(" ", 1)[1]
        peers = [each for each in found if each.endswith(protocol) and each != kind]
        for step, ours in found[kind].items():
            best = min((moved(found[peer][step]) for peer in peers), default=float("inf"))
            if stayed(ours) > 2 * POLL_MS:
                missed.append(f"{kind}, {step}: what stayed paused {stayed(ours):.0f} ms")
            if moved(ours) > best + 2 * POLL_MS:
                missed.append(
                    f"{kind}, {step}: what moved waited {moved(ours):.0f} ms, best {best:.0f}"
                )
    return missed


def show(broker: str, found: Costs, unsettled: dict[str, str]) -> None:
    """Print one broker's table."""
    print(f"{'on ' + broker + ', ms: stayed / moved (from-to)':44}", end="")
    print("".join(f"{step:>25}" for step in STEPS))
    for kind, costs in found.items():
        print(f"{kind:44}" + "".join(f"{_cell(costs.get(step)):>25}" for step in STEPS))
    for kind, reason in unsettled.items():
        print(f"{kind:44}  {reason}")


def _cell(pauses: Sequence[Pauses] | None) -> str:
    if not pauses:
        return ""
    low, high = min(each.moved for each in pauses), max(each.moved for each in pauses)
    return f"{stayed(pauses):.0f} /{moved(pauses):6.0f} ({low:.0f}-{high:.0f})"


def main() -> int:
    """Measure and print; return 1 if ours cost more than allowed."""
    parser = argparse.ArgumentParser(description="What a rebalance costs.")
    parser.add_argument("--client", nargs="+", choices=KINDS, metavar="NAME")
    parser.add_argument("--cycle", nargs="+", default=list(CYCLES), choices=CYCLES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"each has {GROUPS} tries")
    parser.add_argument("--without-kafka", action="store_true", help="only on ours")
    parser.add_argument("--without-embedded", action="store_true", help="only on Kafka")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    options = parser.parse_args()
    kinds = options.client or KINDS
    if any(kind.startswith("java ") for kind in kinds) and not has_java():
        if options.client:
            parser.error(f"Java's clients need a JDK and {KAFKA_LIBS} (`make test`)")
        print("without Java's clients: no JDK, or no jars of Kafka", file=sys.stderr)
        kinds = [kind for kind in kinds if not kind.startswith("java ")]
    found: dict[str, Costs] = {}
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        # Installed packages are compiled; a read-only checkout is not.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder, "bytecode"))
        commands = commands_of(kinds, Path(folder, "classes"))
        brokers = {}
        if not options.without_embedded:
            ours = BrokerProcess(Path(folder, "ours"), *EMBEDDED_SETTINGS)
            brokers["embedded"] = stack.enter_context(ours).bootstrap_servers
        if not options.without_kafka:
            kafka = stack.enter_context(RealKafka(Path(folder, "kafka"), KAFKA_SETTINGS))
            brokers["Kafka"] = kafka.bootstrap_servers
        for broker, servers in brokers.items():
            found[broker], unsettled = costs_of(commands, servers, options.cycle, options.rounds)
            missed += [f"{broker}: {each}" for each in judge(found[broker])]
            ours_failed = (kind for kind in unsettled if kind.startswith("kohort"))
            missed += [f"{broker}: {kind}: {unsettled[kind]}" for kind in ours_failed]
            if not options.json:
                show(broker, found[broker], unsettled)
    if options.json:
        print(json.dumps({"costs": found, "missed": missed}))
    else:
        print("\n".join(f"MISSED {each}" for each in missed) or "every target reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
