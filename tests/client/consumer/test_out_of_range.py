"""A committed offset that is out of range: skipped records are logged at WARNING."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort import AdminClient, Consumer, TopicPartition
from kohort.types import OffsetAndMetadata
from tests.broker.processes import eventually
from tests.real_kafka import foreign

VALUES = [b"%d" % number for number in range(100)]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def begins_at(bootstrap: str, topic: str, group: str, reset: Any) -> int:
    """The offset at which a member of a group starts to read."""
    place = TopicPartition(topic, 0)
    settings: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": reset}
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=group, **settings) as consumer:
        found: list[int] = []

        def poll() -> bool:
            for records in consumer.poll(200).values():
                found.extend(record.offset for record in records)
            if not found and consumer.assignment() and consumer.position(place) == len(VALUES):
                found.append(len(VALUES))
            return bool(found)

        eventually(poll, "there is a position")
        return found[0]


@pytest.mark.parametrize(
    ("reset", "committed", "begin", "texts"),
    [
        ("earliest", 10, 60, ["Offsets 10 to 59", "up to 50 records", "they were deleted"]),
        ("latest", 10, 100, ["Offsets 10 to 99", "up to 90 records", "or are before the end"]),
        ("earliest", 1_000, 60, ["offset 1000, which is past its end", "going back to 60"]),
        ("latest", 1_000, 100, ["offset 1000, which is past its end", "going back to 100"]),
    ],
)
def test_what_is_passed_over_is_said(
    bootstrap: str,
    reset: str,
    committed: int,
    begin: int,
    texts: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, VALUES)
    place = TopicPartition(topic, 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets({place: OffsetAndMetadata(committed)}, f"g-{topic}")
        admin.delete_records({place: 60})
    caplog.clear()
    assert begins_at(bootstrap, topic, f"g-{topic}", reset) == begin
    (line,) = told(caplog)
    for text in [f"{topic}-0", f"auto.offset.reset={reset}", *texts]:
        assert text in line


@pytest.mark.parametrize(("reset", "begin"), [("earliest", 60), ("latest", 100)])
def test_a_new_group_begins_without_a_word(
    bootstrap: str, reset: str, begin: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, VALUES)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 60})
    caplog.clear()
    assert begins_at(bootstrap, topic, f"g-{topic}", reset) == begin
    assert told(caplog) == []
