"""Pickling and copying clients is refused, with the reason, whether or not they were used."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import (
    AdminClient,
    ArrowDeliveryFuture,
    AsyncAdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryFuture,
    Producer,
)
from tests.client.loops import on_a_loop

WAYS: dict[str, Callable[[object], object]] = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def check_refused(client: object) -> None:
    name = type(client).__name__
    for name_of_way, way in WAYS.items():
        with pytest.raises(TypeError, match=f"an? {name} cannot be pickled or copied: each proc"):
            way(client)
        if name_of_way != "copy":
            with pytest.raises(TypeError, match=f"an? {name} cannot be pickled"):
                way({"client": client})


def test_blocking_clients(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        at = broker.bootstrap_servers
        broker.create_topic("t", 1)
        with (
            Producer(bootstrap_servers=at) as producer,
            Consumer("t", bootstrap_servers=at, group_id="g") as consumer,
            AdminClient(bootstrap_servers=at) as admin,
        ):
            for client in (producer, consumer, admin):
                check_refused(client)
            producer.send("t", b"v").result(60)
            consumer.poll(0)
            assert "t" in admin.list_topics()
            for client in (producer, consumer, admin):
                check_refused(client)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("kind", [DeliveryFuture, ArrowDeliveryFuture])
def test_their_futures(way: Callable[[object], object], kind: Callable[[], object]) -> None:
    """The copy would never complete: waiting for it would never end."""
    with pytest.raises(TypeError, match="Future cannot be pickled or copied"):
        way(kind())


@on_a_loop
async def test_clients_of_a_loop(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        at = broker.bootstrap_servers
        broker.create_topic("t", 1)
        async with (
            AsyncProducer(bootstrap_servers=at) as producer,
            AsyncConsumer("t", bootstrap_servers=at, group_id="g") as consumer,
            AsyncAdminClient(bootstrap_servers=at) as admin,
        ):
            for client in (producer, consumer, admin):
                check_refused(client)
            await (await producer.send("t", b"v"))
            await consumer.poll(0)
            assert "t" in await admin.list_topics()
            for client in (producer, consumer, admin):
                check_refused(client)
