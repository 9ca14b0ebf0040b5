"""Apache Kafka's own Java clients and its tool for groups, on the embedded broker."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from kohort.broker import EmbeddedBroker
from tests.real_kafka.broker import FAST_START, java_command
from tests.real_kafka.java_clients import DEADLINE_S, JavaGroup, Seen, Tool
from tests.system.clients.group import (
    ConfluentMember,
    ConsumerProtocolMember,
    Driver,
    Member,
    produce,
)

PARTITIONS = 9
RECORDS = 5_000
LAST = 500
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
# Of a classic member's heartbeat interval, 3 s, sessions can only be longer.
PROTOCOLS = {
    "classic": ["--assignment-strategy", COOPERATIVE, "--session-timeout", "3500"],
    "consumer": [],
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        group_consumer_session_timeout_ms=2_000, group_consumer_heartbeat_interval_ms=200
    ) as running:
        running.create_topic("t", PARTITIONS)
        yield running


def start(
    news: threading.Condition, stack: ExitStack, servers: str, protocol: str, options: list[str]
) -> JavaGroup:
    arguments = ["--bootstrap-server", servers, "--topic", "t", "--reset-policy", "earliest"]
    arguments += ["--group-protocol", protocol, *options]
    group = JavaGroup(news, protocol, arguments)
    stack.callback(group.end, signal.SIGKILL)
    return group


def test_java_members_come_and_go_and_lose_nothing(broker: EmbeddedBroker) -> None:
    """L1, K31: in both protocols one member is asked to stop and one killed under load."""
    servers, news = broker.bootstrap_servers, threading.Condition()
    with ExitStack() as stack:
        groups = [start(news, stack, servers, *each) for each in PROTOCOLS.items()]
        for group in groups:
            group.until_shared(group.members, PARTITIONS)
        first = stack.enter_context(producer(news, servers, RECORDS - LAST, "--throughput", "1000"))
        for group in groups:
            group.until_seen(RECORDS // 5)
            group.members[1].end(signal.SIGTERM)
        for group in groups:
            group.until_seen(RECORDS // 2)
            group.members[0].end(signal.SIGKILL)
        for group in groups:
            group.until_shared(group.members[2:], PARTITIONS)
        first.join()
        # these are committed whatever became of commits while the groups rebalanced
        last = stack.enter_context(producer(news, servers, LAST))
        last.join()
        sent = first.named(SENT) + last.named(SENT)
        for group in groups:
            group.until_seen(RECORDS)
            group.members[2].end(signal.SIGTERM)
            check(group, {(each["partition"], each["offset"]) for each in sent})


def producer(news: threading.Condition, servers: str, count: int, *options: str) -> Tool:
    arguments = ["--bootstrap-server", servers, "--topic", "t", "--max-messages", str(count)]
    return Tool(news, "VerifiableProducer", *arguments, "--repeating-keys", "90", *options)


SENT = "producer_send_success"


def check(group: JavaGroup, acked: set[Seen]) -> None:
    """Nothing lost; nothing twice but what could not be committed; all of it committed.

    In a cooperative group a commit fails while the group rebalances (L11).
    """
    assert len(acked) == RECORDS
    assert set(group.seen) == acked
    uncommitted = {each for member in group.members for each in member.uncommitted}
    assert {each for each, times in group.seen.items() if times > 1} <= uncommitted
    for member in group.members[1:]:
        assert member.named("shutdown_complete")
    errors = {error for member in group.members for error in member.errors}
    assert all("rebalance" in error for error in errors), errors
    assert not errors or group.group == "classic"
    ends = {number: 1 + max(at for p, at in acked if p == number) for number, _ in acked}
    assert group.committed == ends


# ------------------------------------------------------------------------ kafka-consumer-groups.sh


GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS_TOOL = "kafka.admin.ConfigCommand"
QUIET = (*FAST_START, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


def groups_tool(servers: str, line: str, name: str = GROUPS_TOOL) -> list[list[str]]:
    """What the tool prints for a command line: its lines, as words."""
    arguments = ["--bootstrap-server", servers, *line.split()]
    command = java_command(name, *arguments, jvm_options=QUIET)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return [words.split() for words in (done.stdout + done.stderr).splitlines() if words.strip()]


def answers(servers: str, *lines: str) -> list[list[list[str]]]:
    """What the tool prints for several command lines, two of them at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(partial(groups_tool, servers), lines))


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.leave_all()


def fill_groups(broker: EmbeddedBroker, driver: Driver) -> list[Member]:
    """A group of each protocol, of one member that has read everything."""
    servers = broker.bootstrap_servers
    produce(servers, "t", 90)
    members: list[Member] = [
        driver.add(partial(ConfluentMember, servers, "old", "t", client_id="here")),
        driver.add(partial(ConsumerProtocolMember, servers, "new", "t", client_id="here")),
    ]
    for each in members:
        driver.until_shared([each], PARTITIONS)
    driver.until(lambda: driver.seen.total() == 180, "every record in both groups")
    return members


def test_the_groups_tool_shows_groups_of_both_protocols(
    broker: EmbeddedBroker, driver: Driver
) -> None:
    """K38: what Kafka 4.3's own tool prints of groups with members."""
    fill_groups(broker, driver)
    servers = broker.bootstrap_servers
    coordinator = [servers, "(1)"]
    everything = "t:" + ",".join(map(str, range(PARTITIONS)))
    states, types, members, described, refused, inactive = answers(
        servers,
        "--list --state",
        "--list --type",
        "--describe --all-groups --members --verbose",
        "--describe --all-groups --state",
        "--delete --group new",
        "--reset-offsets --group old --topic t --to-earliest --execute",
    )
    assert states[1:] == [["new", "Stable"], ["old", "Stable"]]
    assert types[1:] == [["new", "Consumer"], ["old", "Classic"]]
    _, new, _, old = [[line[0], *line[2:]] for line in members]
    assert new == ["new", "/127.0.0.1", "here", "9", "2", everything, "2", everything]
    assert old == ["old", "/127.0.0.1", "here", "9", "-", everything, "-", "-"]
    assert described[1] == ["new", *coordinator, "uniform", "Stable", "1"]
    assert described[3] == ["old", *coordinator, "range", "Stable", "1"]
    assert " ".join(refused[1]).endswith("GroupNotEmptyException: The group is not empty.")
    assert " ".join(inactive[0]).endswith("is inactive, but the current state is Stable.")


def test_the_groups_tool_changes_offsets_and_deletes(
    broker: EmbeddedBroker, driver: Driver
) -> None:
    """K38: what its commands do to groups whose members have left."""
    for member in fill_groups(broker, driver):
        driver.leave(member)
    ends = {number: 1 + max(at for p, at in driver.seen if p == number) for number in range(9)}
    servers = broker.bootstrap_servers
    described, _, deleted = answers(
        servers,
        "--describe --group old",
        "--reset-offsets --group new --topic t:1 --shift-by -1 --execute",
        "--delete-offsets --group old --topic t:0,2",
    )
    assert positions("old", described) == ends
    assert deleted[-2:] == [["t", "0", "Successful"], ["t", "2", "Successful"]]
    old, new = answers(servers, "--describe --group old", "--describe --group new")
    assert positions("old", old) == {each: ends[each] for each in ends.keys() - {0, 2}}
    assert positions("new", new) == ends | {1: ends[1] - 1}
    gone, listed = [groups_tool(servers, line) for line in ("--delete --all-groups", "--list")]
    assert " ".join(gone[0]).endswith("('new', 'old') was successful.")
    assert not listed


def test_k57_the_configs_tool_gives_a_group_its_own_times(broker: EmbeddedBroker) -> None:
    servers, of_group = broker.bootstrap_servers, "--entity-type groups --entity-name g"
    change = "--alter --add-config consumer.session.timeout.ms=50000"
    (done,) = groups_tool(servers, f"{of_group} {change}", CONFIGS_TOOL)
    assert done[:2] == ["Completed", "updating"]
    told = groups_tool(servers, f"{of_group} --describe", CONFIGS_TOOL)
    assert [line[0] for line in told[1:]] == ["consumer.session.timeout.ms=50000"]


def positions(group: str, lines: list[list[str]]) -> dict[int, int]:
    """The offsets of a group's partitions that the tool shows."""
    return {int(line[2]): int(line[3]) for line in lines if line[0] == group}
