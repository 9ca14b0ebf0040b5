"""What `kohort groups` must do on any broker: the embedded one and a real Kafka run the same."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kohort.client import AdminClient, Consumer, Producer
from kohort.types import TopicPartition
from tests.broker.processes import eventually
from tests.cli.running import as_json, printed, ran, rows, told
from tests.real_kafka.foreign import new_topic

Protocol = Literal["classic", "consumer"]

# The first record's timestamp, 2026-01-01T00:00:00Z; each next one is a minute later.
BEGIN_MS = 1_767_225_600_000
MINUTE_MS = 60_000


def dated_topic(bootstrap: str, partitions: int = 2, each: int = 10) -> str:
    """A topic whose partitions have so many records, each a minute after the one before."""
    topic = new_topic(bootstrap, partitions, retention_ms="-1")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(each):
            for partition in range(partitions):
                producer.send(
                    topic, b"v", partition=partition, timestamp_ms=BEGIN_MS + number * MINUTE_MS
                )
    return topic


def add_record(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"one more", partition=0)


def empty_group(bootstrap: str, offsets: dict[TopicPartition, int]) -> str:
    """A group without members that has committed."""
    group = f"group-{uuid.uuid4().hex[:12]}"
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(offsets, group)
    return group


def stored(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        return {at: each.offset for at, each in admin.list_group_offsets(group).items()}


@contextmanager
def member(
    bootstrap: str, topic: str, protocol: Protocol = "classic", instance: str | None = None
) -> Iterator[str]:
    """A group with a member that has partitions and has committed."""
    group = f"group-{uuid.uuid4().hex[:12]}"
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        group_instance_id=instance,
        client_id="worker",
        auto_offset_reset="earliest",
    ) as consumer:

        def has_read() -> bool:
            consumer.poll(50)
            return any(consumer.positions().values())

        eventually(has_read, "the member reads")
        consumer.commit()
        yield group


def a_reset_is_shown_and_then_done(bootstrap: str) -> None:
    topic = dated_topic(bootstrap)
    group = empty_group(bootstrap, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 9})
    reset = ("groups", "reset-offsets", group, "-b", bootstrap, "--topic", topic)
    done = ran(*reset, "--shift-by", "-5")
    assert done.returncode == 3
    assert done.stderr == b"kohort: nothing was changed; to apply it, add --execute\n"
    assert stored(bootstrap, group) == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 9}
    shown = as_json(*reset, "--shift-by", "-5", "--execute")
    assert [(row["new_offset"], row["old_offset"]) for row in shown["partitions"]] == [
        (0, 5),
        (4, 9),
    ]
    assert shown["is_done"] is True
    assert stored(bootstrap, group) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 4}


def an_offset_that_is_not_there_is_told(bootstrap: str) -> None:
    topic = dated_topic(bootstrap, 1)
    reset = ("groups", "reset-offsets", "anew", "-b", bootstrap, "--topic", topic, "--dry-run")
    done = ran(*reset, "--to-offset", "99")
    assert done.returncode == 0
    assert f"kohort: {topic}-0: the end, 10: offset 99 is beyond it\n".encode() in done.stderr
    done = ran(*reset, "--to-datetime", "2027-01-01T00:00:00")
    assert b"the end, 10: no record is at or after 2027-01-01 00:00:00+00:00" in done.stderr
    zero = as_json(*reset, "--to-offset", "0")
    assert [(row["new_offset"], row["note"]) for row in zero["partitions"]] == [(0, "")]
    group = empty_group(bootstrap, {TopicPartition(topic, 0): 2})
    back = ("groups", "reset-offsets", group, "-b", bootstrap, "--all-topics", "--dry-run")
    done = ran(*back, "--shift-by", "-5")
    assert f"kohort: {topic}-0: offset -3 is before the first, 0\n".encode() in done.stderr
    (row,) = as_json(*back, "--shift-by", "-2")["partitions"]
    assert (row["new_offset"], row["note"]) == (0, "")


def a_partition_that_is_not_there_keeps_all_from_their_reset(bootstrap: str) -> None:
    topic = dated_topic(bootstrap, 1)
    group = empty_group(bootstrap, {TopicPartition(topic, 0): 4})
    reset = ("groups", "reset-offsets", group, "-b", bootstrap, "--topic", f"{topic}:0,7")
    refused = told(*reset, "--to-latest", "--execute", code=1)
    assert f"kohort: cannot be reset: UNKNOWN_TOPIC_OR_PARTITION: {topic}-7" in refused
    assert "kohort: nothing was changed: leave out what cannot be reset\n" in refused
    assert as_json(*reset, "--to-latest", "--execute", code=1)["is_done"] is False
    assert stored(bootstrap, group) == {TopicPartition(topic, 0): 4}


def offsets_go_to_a_file_and_back(bootstrap: str, folder: Path) -> None:
    topic = dated_topic(bootstrap)
    group = empty_group(bootstrap, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 9})
    reset = ("groups", "reset-offsets", group, "-b", bootstrap)
    kept = folder / "offsets.csv"
    kept.write_text(printed(*reset, "--all-topics", "--to-current", "--export"))
    assert kept.read_text() == f"{topic},0,4\n{topic},1,9\n"
    printed(*reset, "--all-topics", "--to-latest", "--execute")
    printed(*reset, "--from-file", str(kept), "--execute")
    assert stored(bootstrap, group) == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 9}


def a_group_with_members_is_left_alone_and_they_are_named(
    bootstrap: str, protocol: Protocol
) -> None:
    topic = dated_topic(bootstrap, 1)
    with member(bootstrap, topic, protocol) as group:
        reset = ("groups", "reset-offsets", group, "-b", bootstrap, "--all-topics", "--to-earliest")
        refused = told(*reset, "--execute", code=1)
        assert f"group {group} is Stable and has 1 member(s)" in refused
        assert "stop worker (" in refused
        assert "until then --execute will be refused" in told(*reset, code=3)
        refused = told("groups", "delete", group, "nowhere", "-b", bootstrap, code=1)
        assert "stop worker (" in refused
        assert "group nowhere was not deleted: GROUP_ID_NOT_FOUND" in refused
        forget = ("groups", "delete-offsets", group, "-b", bootstrap, "--topic", topic)
        done = ran(*forget)
        assert done.returncode == 1
        assert f"GROUP_SUBSCRIBED_TO_TOPIC: {topic}-0\n".encode() in done.stdout
        assert f"stop the members that subscribe to {topic}: worker (".encode() in done.stderr
    assert stored(bootstrap, group) == {TopicPartition(topic, 0): 10}
    assert printed(*forget).split()[-2:] == ["0", "Successful"]
    assert stored(bootstrap, group) == {}


def lags_are_added_up(bootstrap: str) -> None:
    topic, other = dated_topic(bootstrap), dated_topic(bootstrap, 1)
    offsets = {
        TopicPartition(topic, 0): 4,
        TopicPartition(topic, 1): 9,
        TopicPartition(other, 0): 10,
    }
    one, two = (
        empty_group(bootstrap, offsets),
        empty_group(bootstrap, {TopicPartition(other, 0): 3}),
    )
    found = as_json("groups", "lag", one, two, "-b", bootstrap)
    assert (found["lag"], found["max_lag"], found["partitions"], found["unknown"]) == (14, 7, 4, 0)
    assert [(each["group"], each["lag"]) for each in found["groups"]] == [(one, 7), (two, 7)]
    topics = {each["topic"]: each["lag"] for each in found["groups"][0]["topics"]}
    assert topics == {topic: 7, other: 0}
    table = rows(printed("groups", "lag", one, two, "-b", bootstrap))
    assert {(row["GROUP"], row["TOPIC"], row["LAG"], row["MAX-LAG"]) for row in table} == {
        (one, topic, "7", "6"),
        (one, other, "0", "0"),
        (two, other, "7", "7"),
        ("TOTAL", "-", "14", "7"),
    }
    every = as_json("groups", "lag", "-b", bootstrap)["groups"]
    assert {one, two} <= {each["group"] for each in every}
    some = ("groups", "lag", one, "nowhere", "-b", bootstrap)
    found = as_json(*some, code=1)
    assert [(each["group"], each["lag"]) for each in found["groups"]] == [(one, 7)]
    assert list(found["failed"]) == ["nowhere"]
    done = ran(*some)
    assert {row["TOPIC"] for row in rows(done.stdout.decode())} == {topic, other, "-"}
    assert b"kohort: the lag of nowhere is not known: GROUP_ID_NOT_FOUND: nowhere" in done.stderr
    assert "GROUP_ID_NOT_FOUND" in told("groups", "lag", "nowhere", "-b", bootstrap, code=1)


def a_group_is_deleted(bootstrap: str) -> None:
    topic = dated_topic(bootstrap, 1)
    group = empty_group(bootstrap, {TopicPartition(topic, 0): 4})
    assert printed("groups", "delete", group, "-b", bootstrap) == f"group {group} was deleted\n"
    assert "GROUP_ID_NOT_FOUND" in told("groups", "describe", group, "-b", bootstrap, code=1)


def static_members_are_removed(bootstrap: str, protocol: Protocol) -> None:
    topic = dated_topic(bootstrap, 1)
    with member(bootstrap, topic, protocol, instance="worker-7") as group:
        remove = ("groups", "remove-members", group, "-b", bootstrap)
        refused = told(*remove, "--instance-id", "worker-8", code=1)
        assert "has no member worker-8; its members: worker (worker-7 at " in refused
        listed = as_json("groups", "members", group, "-b", bootstrap)["members"]
        assert [each["group_instance_id"] for each in listed] == ["worker-7"]
        gone = as_json(*remove, "--instance-id", "worker-7", "--reason", "moved")
        assert gone["removed"] == [listed[0]["consumer_id"]]


def groups_are_listed_by_state_and_type(bootstrap: str) -> None:
    topic = dated_topic(bootstrap, 1)
    group = empty_group(bootstrap, {TopicPartition(topic, 0): 4})
    with member(bootstrap, topic, "consumer") as active:
        listing = ("groups", "list", "-b", bootstrap)
        every = as_json(*listing)["groups"]
        stable = as_json(*listing, "--state", "stable")["groups"]
        consumer = as_json(*listing, "--type", "Consumer", "--state", "Stable,Empty")["groups"]
    assert {group, active} <= {each["group"] for each in every}
    names = {each["group"] for each in stable}
    assert (active in names, group in names) == (True, False)
    assert {each["type"] for each in consumer} == {"consumer"}
