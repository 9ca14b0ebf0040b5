"""`kohort groups` on the embedded broker."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from kohort.broker import EmbeddedBroker
from kohort.cli.group_views import DISPENSABLE_OF_OFFSETS, Position, offsets_table
from kohort.cli.group_watch import Changes, seen, shown_in, view
from kohort.cli.shared import fitted, print_changes
from kohort.client import AdminClient, Consumer, GroupDescription
from kohort.client.admin.values import MemberDescription
from kohort.errors import AuthenticationError, ErrorCode
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.broker.processes import DEADLINE_S, eventually
from tests.cli import group_scenarios as scenarios
from tests.cli.running import KOHORT, as_json, printed, ran, told


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(
        tmp_path_factory.mktemp("broker"), group_consumer_heartbeat_interval_ms=50
    ) as broker:
        yield broker.bootstrap_servers


def test_a_reset_is_shown_and_then_done(bootstrap: str) -> None:
    scenarios.a_reset_is_shown_and_then_done(bootstrap)


def test_an_offset_that_is_not_there_is_told(bootstrap: str) -> None:
    scenarios.an_offset_that_is_not_there_is_told(bootstrap)


def test_a_partition_that_is_not_there_keeps_all_from_their_reset(bootstrap: str) -> None:
    scenarios.a_partition_that_is_not_there_keeps_all_from_their_reset(bootstrap)


def test_offsets_go_to_a_file_and_back(bootstrap: str, tmp_path: Path) -> None:
    scenarios.offsets_go_to_a_file_and_back(bootstrap, tmp_path)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_left_alone_and_they_are_named(
    bootstrap: str, protocol: scenarios.Protocol
) -> None:
    scenarios.a_group_with_members_is_left_alone_and_they_are_named(bootstrap, protocol)


def test_lags_are_added_up(bootstrap: str) -> None:
    scenarios.lags_are_added_up(bootstrap)


def test_a_group_that_has_read_nothing_has_no_lag_that_is_known(bootstrap: str) -> None:
    topic = scenarios.dated_topic(bootstrap, 2)
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer:
        eventually(lambda: bool(consumer.poll(50) or consumer.assignment()), "partitions")
        (group,) = as_json("groups", "lag", topic, "-b", bootstrap)["groups"]
    assert (group["lag"], group["max_lag"], group["unknown"]) == (0, None, 2)


def test_lags_are_watched(bootstrap: str) -> None:
    topic = scenarios.dated_topic(bootstrap, 1)
    group = scenarios.empty_group(bootstrap, {TopicPartition(topic, 0): 4})
    command = [*KOHORT, "groups", "lag", group, "-b", bootstrap, "--watch", "--every", "0.1"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["lag"] == 6
        scenarios.add_record(bootstrap, topic)
        assert json.loads(watching.stdout.readline())["lag"] == 7
        watching.send_signal(signal.SIGINT)
        assert watching.wait(DEADLINE_S) == 0


def test_a_group_is_deleted(bootstrap: str) -> None:
    scenarios.a_group_is_deleted(bootstrap)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_static_members_are_removed(bootstrap: str, protocol: scenarios.Protocol) -> None:
    scenarios.static_members_are_removed(bootstrap, protocol)


def test_groups_are_listed_by_state_and_type(bootstrap: str) -> None:
    scenarios.groups_are_listed_by_state_and_type(bootstrap)


@pytest.mark.parametrize(("options", "reason"), [
    ([], "choose one of"),
    (["--to-earliest", "--to-latest"], "choose one of"),
    (["--to-earliest"], "name the partitions"),
    (["--to-earliest", "--all-topics", "--topic", "t"], "name the partitions"),
    (["--to-earliest", "--topic", "t:x"], "'t:x' is neither TOPIC nor"),
    (["--from-file", "f", "--all-topics"], "--from-file names the partitions"),
    (["--by-duration", "1 day", "--all-topics"], "not an ISO 8601 duration"),
    (["--by-duration", "P99999999D", "--all-topics"], "before the year 1"),
    (["--to-datetime", "today", "--all-topics"], "not an ISO 8601 time"),
    (["--to-earliest", "--all-topics", "--execute", "--dry-run"], "contradict"),
    (["--to-earliest", "--all-topics", "--export", "--json"], "--export and --json contradict"),
])  # fmt: skip
def test_options_of_a_reset_that_do_not_fit(options: list[str], reason: str) -> None:
    done = ran("groups", "reset-offsets", "g", "-b", "127.0.0.1:1", *options, columns=200)
    assert done.returncode == 2
    assert reason in done.stderr.decode()


def test_a_narrow_terminal_leaves_columns_out_and_says_so(bootstrap: str) -> None:
    """Python's pty makes a terminal; nothing that is shown is broken into two lines."""
    topic = scenarios.dated_topic(bootstrap, 2)
    with scenarios.member(bootstrap, topic) as group:
        command = [*KOHORT, "groups", "describe", group, "-b", bootstrap]
        code = f"import pty, sys; sys.exit(pty.spawn({command!r}) >> 8)"
        shown = {}
        for columns in (80, 200):
            done = subprocess.run(
                ["env", f"COLUMNS={columns}", "TERM=xterm", sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DEADLINE_S,
                check=True,
            )
            shown[columns] = done.stdout.decode()
    assert "Hidden columns: GROUP, HOST, CONSUMER-ID. To see all" in shown[80]
    assert "Hidden columns" not in shown[200]
    assert "CONSUMER-ID" in shown[200]


def test_a_long_topic_costs_names_rather_than_the_table() -> None:
    group = described("Stable", "north")
    at = TopicPartition("shipments.of.a.rather.long.name", 0)
    found = [Position(at, OffsetAndMetadata(4), 10, group.members[0])]
    columns, rows = offsets_table(group, found, verbose=True)
    made, left_out = fitted(Console(width=80), columns, rows, DISPENSABLE_OF_OFFSETS)
    assert left_out == ("GROUP", "HOST", "CONSUMER-ID", "LEADER-EPOCH", "CLIENT-ID")
    assert [str(column.header) for column in made.columns][-3:] == [
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
    ]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, None])
def test_watch_prints_a_line_whenever_something_differs(
    bootstrap: str, how: signal.Signals | None
) -> None:
    topic = scenarios.dated_topic(bootstrap, 1)
    group = scenarios.empty_group(bootstrap, {TopicPartition(topic, 0): 4})
    command = [*KOHORT, "groups", "watch", group, "-b", bootstrap, "--json", "--every", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        printed("groups", "reset-offsets", group, "-b", bootstrap, "--all-topics", "--to-latest",
                "--execute")  # fmt: skip
        second = json.loads(watching.stdout.readline())
        if how is None:  # the reader goes, which the next line finds
            watching.stdout.close()
            printed("groups", "delete", group, "-b", bootstrap)
        else:
            watching.send_signal(how)
        assert watching.wait(DEADLINE_S) == 0
    assert [each["partitions"][0]["current_offset"] for each in (first, second)] == [4, 10]


def described(state: str, *clients: str, epoch: int | None = None) -> GroupDescription:
    members = tuple(
        MemberDescription(f"{client}-id", None, client, "/127.0.0.1", frozenset(), frozenset())
        for client in clients
    )
    return GroupDescription("g", state, "consumer", "range", members, epoch=epoch)


def test_watch_tells_who_came_and_left_and_since_when_the_state_holds() -> None:
    changes = Changes()
    changes.saw(described("Stable", "north", epoch=1), 0.0)
    since = changes.since()
    changes.saw(described("Stable", "north", epoch=1), 1.0)
    assert (changes.lines(), changes.since()) == ([], since)
    changes.failed("nobody answers", 2.0)
    changes.failed("nobody answers", 3.0)
    changes.saw(described("Reconciling", "south", epoch=2), 60.0)
    assert [line.partition("  ")[2] for line in changes.lines()] == [
        "Stable -> Reconciling",
        "epoch 1 -> 2",
        "north left or was removed (north-id)",
        "south joined (south-id)",
        "the brokers answer again",
        "nobody answers",
    ]
    assert changes.since() != since


def test_watch_shows_the_last_changes_in_a_small_terminal() -> None:
    changes = Changes()
    changes.saw(described("Stable"), 0.0)
    changes.saw(described("Stable", *(f"worker-{number}" for number in range(9))), 1.0)
    group = described("Stable", "worker")
    found = [
        Position(TopicPartition("shipments.of.a.long.name", number), None, 10, group.members[0])
        for number in range(8)
    ]
    small = Console(width=50, height=12, force_terminal=True)
    shown = [str(line) for line in small.render_lines(shown_in(small, group, found, changes))]
    assert sum("joined" in line for line in shown[:12]) == 3
    wide = Console(width=200, height=50, force_terminal=True)
    shown = [str(line) for line in wide.render_lines(shown_in(wide, group, found, changes))]
    assert sum("joined" in line for line in shown) == 9


def test_watch_tells_when_the_group_comes_and_goes() -> None:
    changes = Changes()
    changes.missing("g", 0.0)
    changes.missing("g", 1.0)
    changes.saw(described("Stable", "north"), 2.0)
    changes.missing("g", 3.0)
    assert [line.partition("  ")[2] for line in changes.lines()] == [
        "there is no group g any more",
        "north joined (north-id)",
        "group g is there",
        "there is no group g yet",
    ]


def test_watch_begins_before_the_group_does(bootstrap: str) -> None:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        changes, group = Changes(), f"group-{uuid.uuid4().hex[:12]}"
        view(admin, group, changes)
        assert [line.partition("  ")[2] for line in changes.lines()] == [
            f"there is no group {group} yet"
        ]
        topic = scenarios.dated_topic(bootstrap, 1)
        admin.alter_group_offsets({TopicPartition(topic, 0): 4}, group)
        view(admin, group, changes)
        assert changes.lines()[0].endswith(f"  group {group} is there")


def test_watch_ends_where_waiting_does_not_help() -> None:
    refused = AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password")

    class Refused:
        def describe_groups(self, _groups: list[str]) -> dict[str, GroupDescription]:
            raise refused

    admin = cast("AdminClient", Refused())
    with pytest.raises(AuthenticationError):
        view(admin, "g", Changes())
    with pytest.raises(AuthenticationError):
        asyncio.run(print_changes(lambda: seen(admin, "g"), 0.1))


@pytest.mark.parametrize(("text", "reason"), [
    ("", "has no offsets"),
    ("t,0", "line 1: must be topic,partition,offset"),
    ("t,0,1\nt,0,2", "line 2: t-0 is listed twice"),
    ("other,t,0,1", "line 1: is about group 'other', not 'g'"),
    ("t,0,-1", "line 1: must be"),
])  # fmt: skip
def test_a_file_of_offsets_is_refused_with_its_line(
    bootstrap: str, tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    given = ("groups", "reset-offsets", "g", "-b", bootstrap, "--from-file", str(path))
    assert reason in told(*given, "--execute", code=1)


def test_a_pipe_gets_every_column_however_long(bootstrap: str) -> None:
    topic = scenarios.dated_topic(bootstrap, 300, each=1)
    with scenarios.member(bootstrap, topic) as group:
        (_, head, row) = printed("groups", "members", group, "-b", bootstrap, "-v").splitlines()
    assert head.split()[:2] == ["GROUP", "CONSUMER-ID"]
    assert f"{topic}:{','.join(map(str, range(300)))} " in row
