"""The optimal assignors, compared with Kafka's own in Java on the same groups in the same run.

A group is assigned, then assigned again after one member has joined, and after one has left. Times
are medians: from arrays to arrays, which is most similar to Java's, and from public dictionaries to
public dictionaries, including members' claims. Our times are CPU time; Java, which runs if a JDK
and Kafka's jars are present, measures wall-clock time.

    python benchmarks/assignors.py [--rounds N] [--json] [--without-java]
"""

from __future__ import annotations

import gc
import json
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.group.assignors import (  # noqa: E402  # as above
    ClusterView,
    CooperativeStickyAssignor,
    MemberSubscription,
    Subscription,
    UniformAssignor,
)
from kohort.group.assignors.problem import build, solve  # noqa: E402  # as above
from kohort.values import replace  # noqa: E402  # as above
from tests.real_kafka.broker import KAFKA_LIBS  # noqa: E402  # as above
from tests.system.kafka.assignors.driver import JavaAssignors  # noqa: E402  # as above

JAVA_OPTIONS = ("-Xmx6g", "-XX:+UseSerialGC")
JAVA_ROUNDS = 3
CHANGES = ("full", "same", "joins", "leaves")
MEMORY_TARGET_MIB = 1024
# Arrays to arrays is fast, and the compared times differ by little.
ARRAY_ROUNDS = 25

Cases = dict[str, dict[str, Subscription]]
Works = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Group:
    """A group to assign, and its time limits.

    Attributes:
        topics: Number of topics.
        size: Partitions of each.
        members: Number of members.
        halves: Whether each member subscribes to a random half of the topics instead of all.
        arrays_s: Maximum seconds from arrays to arrays, if limited.
        dictionaries_s: Maximum seconds from dictionaries to dictionaries.
        java_client: Whether Java's cooperative-sticky ends within a reasonable time.
    """

    topics: int
    size: int
    members: int
    halves: bool
    arrays_s: float | None
    dictionaries_s: float
    java_client: bool

    @property
    def title(self) -> str:
        """Its name in the report."""
        kind = "halves" if self.halves else "all"
        return f"{self.topics * self.size:,} x {self.members:,}, {kind} of {self.topics}"

    @property
    def cluster(self) -> ClusterView:
        """Its topics."""
        return ClusterView({f"topic-{n:04}": self.size for n in range(self.topics)})

    def subscription(self, rng: random.Random) -> Subscription:
        """The subscription of one member."""
        names = sorted(self.cluster.partitions)
        some = rng.sample(names, self.topics // 2) if self.halves else names
        return Subscription(topics=frozenset(some))


GROUPS = (
    Group(500, 2000, 2000, False, 0.1, 0.8, True),
    Group(500, 2000, 2000, True, None, 1.5, False),
    Group(500, 200, 500, True, None, 0.15, False),
    Group(50, 2000, 500, True, None, 0.15, False),
    Group(100, 100, 1000, False, None, 0.01, True),
    Group(100, 100, 1000, True, None, 0.01, True),
)


def changes(group: Group) -> Cases:
    """Return the group without an assignment, with one, after a join, and after a leave."""
    rng = random.Random(group.topics)
    full = {f"consumer-{n:05}": group.subscription(rng) for n in range(group.members)}
    given = CooperativeStickyAssignor().assign(group.cluster, full)
    same = {
        member: replace(entry, owned=frozenset(given[member]), generation=1)
        for member, entry in full.items()
    }
    joins = {**same, "consumer-x": group.subscription(rng)}
    leaves = {member: entry for member, entry in same.items() if member != "consumer-00007"}
    return {"full": full, "same": same, "joins": joins, "leaves": leaves}


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median CPU time of each work in milliseconds.

    They take turns, so that a slow phase of the machine affects all of them alike. CPU time is
    measured because our code has one thread and other programs share the machine.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            gc.collect()
            gc.disable()
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
            gc.enable()
    return {name: 1000 * statistics.median(each) for name, each in times.items()}


def measure(
    group: Group, rounds: int, java: JavaAssignors | None
) -> dict[str, dict[str, float | None]]:
    """Return milliseconds by change and column; None where Java does not run."""
    cases = changes(group)
    ours = {
        "arrays": in_turns(arrays_of(group, cases), max(rounds, ARRAY_ROUNDS)),
        "client": in_turns(client_of(group, cases), rounds),
        "server": in_turns(server_of(group, cases), rounds),
    }
    return {
        change: {
            **{column: times[change] for column, times in ours.items()},
            "Java client": in_java(java, group, "cooperative-sticky", subscriptions),
            "Java server": in_java(java, group, "server-uniform", subscriptions),
        }
        for change, subscriptions in cases.items()
    }


def arrays_of(group: Group, cases: Cases) -> Works:
    """Return the assignment from arrays to arrays, by change."""
    return {
        change: partial(solve, build(group.cluster, subscriptions))
        for change, subscriptions in cases.items()
    }


def client_of(group: Group, cases: Cases) -> Works:
    """Return the leader's assignment from dictionaries to dictionaries, by change."""
    return {
        change: partial(CooperativeStickyAssignor().assign, group.cluster, subscriptions)
        for change, subscriptions in cases.items()
    }


def server_of(group: Group, cases: Cases) -> Works:
    """Return the coordinator's assignment, by change."""
    works: Works = {}
    for change, subscriptions in cases.items():
        members = {
            member: MemberSubscription(topics=entry.topics, owned=entry.owned)
            for member, entry in subscriptions.items()
        }
        works[change] = partial(UniformAssignor().assign, members, group.cluster.partitions)
    return works


def in_java(
    java: JavaAssignors | None, group: Group, name: str, subscriptions: Mapping[str, Subscription]
) -> float | None:
    """Return the milliseconds of Kafka's assignor, None if it is left out."""
    if java is None or (name == "cooperative-sticky" and not group.java_client):
        return None
    java.assign(name, group.cluster, subscriptions, rounds=JAVA_ROUNDS)
    return 1000 * java.seconds


def missed(group: Group, rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """Return the figures that miss their target."""
    found = []
    full = rows["full"]["arrays"] or 0.0
    for change, row in rows.items():
        limits = {
            "arrays": group.arrays_s,
            "client": group.dictionaries_s,
            "server": group.dictionaries_s,
        }
        for column, limit in limits.items():
            value = row[column]
            if limit is not None and value is not None and value > 1000 * limit:
                found.append(f"{group.title}, {change}, {column}: {value:.1f} ms")
        # Clock and caches account for a tenth of a millisecond.
        if change in ("joins", "leaves") and (row["arrays"] or 0.0) > full + 0.1:
            found.append(f"{group.title}: {change} takes longer than full")
    return found


def memory_mib() -> float:
    """Return the memory for an assignment of a million partitions, measured in a new process."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def print_memory() -> int:
    """Print the growth of the process from the inputs to the end of an assignment."""
    group = GROUPS[1]
    cases = changes(group)
    before = _resident_mib("VmRSS")
    CooperativeStickyAssignor().assign(group.cluster, cases["joins"])
    print(_resident_mib("VmHWM") - before)
    return 0


def _resident_mib(field: str) -> float:
    """Return this process's memory; `getrusage` would include its parent's former maximum."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def show(group: Group, rows: Mapping[str, Mapping[str, float | None]]) -> None:
    """Print one group's table."""
    columns = list(rows["full"])
    print(f"{group.title:34}" + "".join(f"{column:>13}" for column in columns))
    for change, row in rows.items():
        cells = ("" if row[c] is None else f"{row[c]:.2f}" for c in columns)
        print(f"  {change:32}" + "".join(f"{cell:>13}" for cell in cells))


def main() -> int:
    """Measure and print; return 1 if a target was missed."""
    parser = harness.arguments(__doc__ or "", rounds=5)
    parser.add_argument("--without-java", action="store_true", help="only ours")
    parser.add_argument("--memory", action="store_true", help="measure memory in this process")
    options = parser.parse_args()
    if options.memory:
        return print_memory()
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    misses: list[str] = []
    with ExitStack() as stack:
        java = None
        if not options.without_java and shutil.which("javac") and KAFKA_LIBS.exists():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            java = stack.enter_context(JavaAssignors(folder, JAVA_OPTIONS))
        for group in GROUPS:
            rounds = options.rounds if group.dictionaries_s > 0.1 else 5 * options.rounds
            rows = found[group.title] = measure(group, rounds, java)
            misses += missed(group, rows)
            if not options.json:
                show(group, rows)
    memory = memory_mib()
    if memory > MEMORY_TARGET_MIB:
        misses.append(f"memory: {memory:.0f} MiB")
    if options.json:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        figures = {"benchmark": "assignors", "machine": machine, "milliseconds": found}
        print(json.dumps({**figures, "memory_mib": memory, "missed": misses}))
    else:
        print(f"memory of a million partitions: {memory:.0f} MiB")
        print("\n".join(f"MISSED {each}" for each in misses) or "every target reached")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
