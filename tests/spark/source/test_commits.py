"""Commits that the group refuses for good end the query; many partitions are committed in parts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kohort.broker import EmbeddedBroker
from kohort.errors import CommitFailedError, ErrorCode, KafkaError, RequestTimedOutError
from kohort.spark.source.commits import is_lasting
from kohort.spark.source.query_state import MembershipLostError
from tests.spark.brokers import bootstrap
from tests.spark.playing import PlayedQuery, committed, options, produce, set_group

__all__ = ["bootstrap"]

MODES = ["member", "commitOnly"]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that takes no note of this source."""
    with EmbeddedBroker(tmp_path_factory.mktemp("narrow"), offset_metadata_max_bytes=128) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def strict(narrow: str, request: pytest.FixtureRequest) -> tuple[str, str]:
    """The narrow broker, and a topic of the test's own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    admin = AdminClient({"bootstrap.servers": narrow})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return narrow, name


@pytest.mark.parametrize("mode", MODES)
def test_a_query_whose_start_is_not_accepted_does_not_begin(
    strict: tuple[str, str], mode: str
) -> None:
    bootstrap, topic = strict
    produce(bootstrap, topic, {0: 5})
    query = PlayedQuery(options(bootstrap, topic, groupMode=mode, startingOffsets="latest"))
    with pytest.raises(KafkaError, match="OFFSET_METADATA_TOO_LARGE") as refused:
        query.offer()
    query.reader.stop()
    assert refused.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert "offset.metadata.max.bytes of the brokers (4096 by default) to 2" in str(refused.value)
    assert f"{topic}-0" in str(refused.value)
    assert committed(bootstrap, topic, [0]) == {0: -1001}


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_whose_commit_is_not_accepted_is_the_last(
    strict: tuple[str, str], mode: str
) -> None:
    bootstrap, topic = strict
    produce(bootstrap, topic, {0: 5})
    set_group(bootstrap, topic, {0: 0})
    query = PlayedQuery(options(bootstrap, topic, groupMode=mode))
    while not query.offer():
        pass
    query.write()
    with pytest.raises(KafkaError, match="OFFSET_METADATA_TOO_LARGE"):
        query.offer()
    query.reader.stop()
    assert committed(bootstrap, topic, [0]) == {0: 0}


def test_a_note_holds_the_longest_text_of_an_alphabet(bootstrap: str, topic: str) -> None:
    """Each letter has as many bytes as UTF-8 needs, and not those of an escape."""
    produce(bootstrap, topic, {0: 5})
    query = PlayedQuery(
        options(bootstrap, topic, commitMetadata="\N{CYRILLIC SMALL LETTER YA}" * 1000)
    )
    query.run_until(5)
    query.reader.stop()
    assert committed(bootstrap, topic, [0]) == {0: 5}


def test_a_commit_of_many_partitions_with_long_notes_is_stored(bootstrap: str, topic: str) -> None:
    """1200 notes of 1000 characters exceed the batch of 1 MiB that a coordinator writes."""
    name, count = f"{topic}-wide", 1200
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, count, 1)])[name].result(120)
    produce(bootstrap, name, dict.fromkeys(range(0, count, 100), 1))
    query = PlayedQuery(options(bootstrap, name, commitMetadata="m" * 1000))
    query.run_until(count // 100)
    query.reader.stop()
    found = committed(bootstrap, name, range(count))
    assert found == {number: int(number % 100 == 0) for number in range(count)}


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        (KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE), True),
        (KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE), True),
        (KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED), True),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), True),
        (KafkaError(ErrorCode.FENCED_INSTANCE_ID), True),
        (KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), False),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), False),
        (KafkaError(31_000), False),
        (RequestTimedOutError("no answer"), False),
        (CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID), False),
    ],
)
def test_only_what_waiting_cannot_mend_is_for_good(error: KafkaError, lasts: bool) -> None:
    assert is_lasting(error) is lasts


def test_two_queries_with_one_instance_id_are_told_so(bootstrap: str, topic: str) -> None:
    """The group takes partitions from the older one in the middle of its batch."""
    produce(bootstrap, topic, {0: 5})
    settings = options(bootstrap, topic, kafka__group__instance__id="same")
    older, newer = PlayedQuery(settings), PlayedQuery(settings)
    while not older.offer():
        pass
    older.write()
    newer.offer()
    with pytest.raises((KafkaError, MembershipLostError)) as lost:
        trigger_in_turn(bootstrap, topic, newer, older)
    for query in (older, newer):
        query.reader.stop()
    assert "group.instance.id same" in str(lost.value)
    assert "maxOffsetsPerTrigger" not in str(lost.value)


def trigger_in_turn(bootstrap: str, topic: str, *queries: PlayedQuery) -> None:
    """Trigger until one fails, and give it time for that."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        produce(bootstrap, topic, {0: 1})
        for query in queries:
            query.offer()
