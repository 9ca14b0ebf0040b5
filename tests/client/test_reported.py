"""Problems that users of other clients reported, tested with this client."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import kohort.client
from kohort import AdminClient, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kohort.client import AsyncAdminClient
from tests.broker.processes import eventually
from tests.real_kafka import foreign


def test_unsubscribe_stores_what_the_last_poll_has_returned(bootstrap: str) -> None:
    """Like close; Kafka's own client also stores it (KAFKA-20119)."""
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, [b"one", b"two", b"three"])
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    with consumer:
        consumer.subscribe([topic])
        seen = 0
        while seen < 3:
            seen += sum(map(len, consumer.poll(100).values()))
        consumer.unsubscribe()
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            stored = admin.list_group_offsets(topic)
    assert {place: each.offset for place, each in stored.items()} == {TopicPartition(topic, 0): 3}


def test_static_members_that_restart_with_another_server_assignor_keep_their_shares(
    bootstrap: str,
) -> None:
    """As on Apache Kafka (KAFKA-20434): a description names the new assignor."""
    topic = foreign.new_topic(bootstrap, 4)

    def members(assignor: str) -> list[Consumer]:
        found = []
        for number in range(2):
            consumer = Consumer(
                bootstrap_servers=bootstrap,
                group_id=topic,
                group_protocol="consumer",
                group_instance_id=f"static-{number}",
                group_remote_assignor=assignor,
            )
            consumer.subscribe([topic])
            found.append(consumer)
        return found

    def shares(consumers: list[Consumer]) -> list[frozenset[TopicPartition]]:
        for each in consumers:
            each.poll(50)
        return [each.assignment() for each in consumers]

    before = members("range")
    eventually(lambda: [*map(len, shares(before))] == [2, 2], "both have a share")
    given = shares(before)
    for each in before:
        each.close()
    after = members("uniform")
    eventually(lambda: shares(after) == given, "both have the shares of before")
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_groups([topic])[topic].assignor == "uniform"
    for each in after:
        each.close()


@pytest.mark.parametrize("client", [Consumer, Producer, AdminClient])
def test_the_settings_that_a_docstring_names_are_there(client: type) -> None:
    name = f"{client.__name__.removesuffix('Client')}Settings"
    assert f"`{name}`" in str(client.__doc__)
    assert name in kohort.client.__all__
    assert "bootstrap_servers" in getattr(kohort.client, name).__annotations__


@pytest.mark.parametrize(
    ("client", "blocking"),
    [(AsyncConsumer, Consumer), (AsyncProducer, Producer), (AsyncAdminClient, AdminClient)],
)
def test_the_docs_name_each_method_that_is_not_awaited(client: type, blocking: type) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
    said = re.search(rf"`{client.__name__}` has([^;.]*)[;.]", page)
    assert said is not None
    called = {
        name
        for name, method in inspect.getmembers(client, callable)
        if not name.startswith("_")
        and callable(getattr(blocking, name, None))
        and not inspect.iscoroutinefunction(method)
    }
    assert set(re.findall(r"`(\w+)`", said[1])) == called
