"""`kohort groups` on Apache Kafka, and beside Kafka's own tool for groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.types import TopicPartition
from tests.cli import group_scenarios as scenarios
from tests.cli.running import printed, rows
from tests.real_kafka.broker import RealKafka

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def theirs(kafka: RealKafka, *arguments: str) -> str:
    return kafka.run_tool(TOOL, "--bootstrap-server", kafka.bootstrap_servers, *arguments)


def ours(kafka: RealKafka, *arguments: str) -> str:
    return printed("groups", *arguments, "-b", kafka.bootstrap_servers)


def offsets_of(text: str) -> list[tuple[str, ...]]:
    """Topic, partition and offset of each line, of a table or of CSV."""
    lines = [line.replace(",", " ").split() for line in text.splitlines()]
    return sorted(tuple(cells) for cells in lines if len(cells) == 3)


def test_a_reset_is_shown_and_then_done(real_kafka: RealKafka) -> None:
    scenarios.a_reset_is_shown_and_then_done(real_kafka.bootstrap_servers)


def test_offsets_go_to_a_file_and_back(real_kafka: RealKafka, tmp_path: Path) -> None:
    scenarios.offsets_go_to_a_file_and_back(real_kafka.bootstrap_servers, tmp_path)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_left_alone_and_they_are_named(
    real_kafka: RealKafka, protocol: scenarios.Protocol
) -> None:
    scenarios.a_group_with_members_is_left_alone_and_they_are_named(
        real_kafka.bootstrap_servers, protocol
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_static_members_are_removed(real_kafka: RealKafka, protocol: scenarios.Protocol) -> None:
    scenarios.static_members_are_removed(real_kafka.bootstrap_servers, protocol)


def test_groups_are_listed_by_state_and_type(real_kafka: RealKafka) -> None:
    scenarios.groups_are_listed_by_state_and_type(real_kafka.bootstrap_servers)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_as_kafkas_tool_does(
    real_kafka: RealKafka, protocol: scenarios.Protocol
) -> None:
    """The same columns in the same order, and the same cells."""
    topic = scenarios.dated_topic(real_kafka.bootstrap_servers)
    with scenarios.member(real_kafka.bootstrap_servers, topic, protocol, "worker-7") as group:
        expected = theirs(real_kafka, "--describe", "--group", group, "--verbose")
        (_, *table) = ours(real_kafka, "describe", group, "--verbose").splitlines()
        assert table[0].split() == expected.split("\n")[1].split()
        assert rows("\n".join(table)) == rows(expected)
        assert len(rows(expected)) == 2

        expected = theirs(real_kafka, "--describe", "--group", group, "--members", "--verbose")
        (_, *table) = ours(real_kafka, "members", group, "--verbose").splitlines()
        assert table[0].split() == expected.split("\n")[1].split()
        if protocol == "classic":  # which has no target; Kafka's tool shows a -
            expected = expected.replace(" -  ", " - ")
        assert rows("\n".join(table)) == rows(expected)
        assert len(rows(expected)) == 1

        (expected_row,) = rows(theirs(real_kafka, "--describe", "--group", group, "--state"))
        (row,) = rows(ours(real_kafka, "state", group))
        assert expected_row == {name: row[name] for name in expected_row}


RESETS = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "5"),
    ("--to-offset", "99"),
    ("--shift-by", "3"),
    ("--shift-by", "-7"),
    ("--to-datetime", "2026-01-01T00:04:30.000"),
    ("--to-datetime", "2026-01-01T03:04:00.000+03:00"),
    ("--to-datetime", "2036-01-01T00:00:00.000"),
    ("--by-duration", "P0DT1H"),
)


@pytest.mark.parametrize("reset", RESETS, ids=" ".join)
def test_offsets_are_reset_as_kafkas_tool_does(
    real_kafka: RealKafka, reset: tuple[str, ...]
) -> None:
    topic = scenarios.dated_topic(real_kafka.bootstrap_servers, 3)
    group = scenarios.empty_group(
        real_kafka.bootstrap_servers, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 9}
    )
    which = ("--topic", f"{topic}:0,1", *reset, "--export", "--dry-run")
    expected = theirs(real_kafka, "--reset-offsets", "--group", group, *which)
    found = ours(real_kafka, "reset-offsets", group, *which)
    assert offsets_of(found) == offsets_of(expected)
    assert len(offsets_of(expected)) == 2


def test_files_of_offsets_are_those_of_kafkas_tool(real_kafka: RealKafka, tmp_path: Path) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = scenarios.dated_topic(bootstrap)
    offsets = {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 9}
    group = scenarios.empty_group(bootstrap, offsets)
    current = ("--all-topics", "--to-current", "--export", "--dry-run")
    our_file, their_file = tmp_path / "ours", tmp_path / "theirs"
    our_file.write_text(ours(real_kafka, "reset-offsets", group, *current))
    their_file.write_text(theirs(real_kafka, "--reset-offsets", "--group", group, *current))
    from_file = ("--from-file", str(our_file), "--execute")
    theirs(real_kafka, "--reset-offsets", "--group", "other-tool", *from_file)
    ours(real_kafka, "reset-offsets", "our-tool", "--from-file", str(their_file), "--execute")
    assert scenarios.stored(bootstrap, "other-tool") == offsets
    assert scenarios.stored(bootstrap, "our-tool") == offsets


@pytest.mark.parametrize(
    ("reset", "which"),
    [
        (("--to-earliest",), ("--all-topics",)),
        (("--shift-by", "2"), ("--topic", "{topic}")),
        (("--to-datetime", "2026-01-01T00:04:30.000"), ("--topic", "{topic}:1")),
        (("--to-offset", "3"), ("--topic", "{topic}:0", "--topic", "{topic}:1")),
    ],
)
def test_a_reset_that_is_done_is_that_of_kafkas_tool(
    real_kafka: RealKafka, reset: tuple[str, ...], which: tuple[str, ...]
) -> None:
    """Two groups that stand at the same offsets: each tool resets one, and says the same."""
    bootstrap = real_kafka.bootstrap_servers
    topic = scenarios.dated_topic(bootstrap)
    offsets = {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 7}
    by_them, by_us = (scenarios.empty_group(bootstrap, offsets) for _ in range(2))
    given = (*(each.format(topic=topic) for each in which), *reset, "--execute")
    said = rows(theirs(real_kafka, "--reset-offsets", "--group", by_them, *given))
    found = rows(ours(real_kafka, "reset-offsets", by_us, *given))
    assert [(r["TOPIC"], r["PARTITION"], r["NEW-OFFSET"]) for r in said] == [
        (r["TOPIC"], r["PARTITION"], r["NEW-OFFSET"]) for r in found
    ]
    assert scenarios.stored(bootstrap, by_us) == scenarios.stored(bootstrap, by_them) != offsets


def test_groups_are_listed_as_kafkas_tool_does(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = scenarios.dated_topic(bootstrap, 1)
    empty = scenarios.empty_group(bootstrap, {TopicPartition(topic, 0): 4})
    with scenarios.member(bootstrap, topic, "consumer") as active:
        for option, value in (("--state", "Stable"), ("--state", "Empty"), ("--type", "consumer")):
            name = option.removeprefix("--").upper()
            listed = {row["GROUP"]: row[name] for row in rows(theirs(real_kafka, "--list", option))}
            shown = {row["GROUP"]: row[name] for row in rows(ours(real_kafka, "list"))}
            for group in (empty, active):
                assert listed[group].lower() == shown[group].lower()
            chosen = theirs(real_kafka, "--list", option, value)
            mine = {row["GROUP"] for row in rows(ours(real_kafka, "list", option, value))}
            for group in (empty, active):
                assert (group in mine) == (group in chosen), (option, value)


def test_the_total_of_a_lag_is_the_sum_of_kafkas_tool(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = scenarios.dated_topic(bootstrap, 3)
    offsets = {TopicPartition(topic, number): 3 * number for number in range(3)}
    group = scenarios.empty_group(bootstrap, offsets)
    table = rows(theirs(real_kafka, "--describe", "--group", group, "--offsets"))
    lags = [int(row["LAG"]) for row in table]
    found = {row["GROUP"]: row for row in rows(ours(real_kafka, "lag", group))}
    assert len(lags) == 3
    assert (found["TOTAL"]["LAG"], found["TOTAL"]["MAX-LAG"]) == (str(sum(lags)), str(max(lags)))
    scenarios.lags_are_added_up(bootstrap)


def test_offsets_and_groups_are_deleted_as_kafkas_tool_does(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = scenarios.dated_topic(bootstrap)
    offsets = {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 7}
    by_them, by_us = (scenarios.empty_group(bootstrap, offsets) for _ in range(2))
    which = ("--topic", f"{topic}:1")
    said = theirs(real_kafka, "--delete-offsets", "--group", by_them, *which)
    assert rows(ours(real_kafka, "delete-offsets", by_us, *which)) == rows(
        said[said.index("TOPIC") :]
    )
    left = {TopicPartition(topic, 0): 4}
    assert scenarios.stored(bootstrap, by_us) == scenarios.stored(bootstrap, by_them) == left
    assert by_them in theirs(real_kafka, "--delete", "--group", by_them)
    ours(real_kafka, "delete", by_us)
    listed = theirs(real_kafka, "--list").split()
    assert by_us not in listed
    assert by_them not in listed
