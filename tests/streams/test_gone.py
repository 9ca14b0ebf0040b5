"""Topics of an application that are gone: what it says of each."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from kohort import AdminClient
from kohort.broker import EmbeddedBroker
from kohort.client.admin.aio import AsyncAdminClient
from kohort.streams import App
from kohort.streams.app.application import application_of
from kohort.streams.runtime.interface import Application
from kohort.streams.topics import missing, prepare
from tests.real_kafka.foreign import create_topic


def application(name: str, read: str = "in", written: str = "out") -> Application:
    """Return a program that counts by another key, which takes a repartition topic."""
    app = App(name)
    records = app.topic(read, key=str, value=str)
    counts = records.key_by(lambda key, value: value, key=str, name="by").count(name="n")
    counts.stream().to(written)
    return application_of(app.build(), None)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("a-by-repartition", {0: "the records that were not processed yet: a-by-repartition"}),
        ("a-n-changelog", {1: "changelogs of a are gone"}),
        ("out", {1: "writes topics that do not exist: out. Create them"}),
    ],
)
def test_what_to_do_about_a_topic_that_is_gone(gone: str, said: dict[int, str]) -> None:
    found = missing(application("a"), frozenset({gone}))
    assert {number: said[number] in str(error) for number, error in found.items()} == dict.fromkeys(
        said, True
    )
    is_to_be_reset = ["kohort streams reset a" in str(error) for error in found.values()]
    assert is_to_be_reset == [gone != "out"]


def test_a_repartition_topic_that_is_made_again_is_warned_of(
    embedded: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    address, name = embedded.bootstrap_servers, f"app-{uuid.uuid4().hex[:10]}"
    read, written = (create_topic(address, f"{name}-{each}", 2) for each in ("in", "out"))
    program = application(name, read, written)

    async def prepared() -> list[str]:
        caplog.clear()
        async with AsyncAdminClient(bootstrap_servers=address) as admin:
            await prepare(admin, program, -1)
        return [each for each in caplog.messages if f"kohort streams reset {name}" in each]

    assert asyncio.run(prepared()) == []
    with AdminClient(bootstrap_servers=address) as admin:
        admin.delete_topics([f"{name}-by-repartition"])
    (told,) = asyncio.run(prepared())
    assert f"its repartition topics {name}-by-repartition do not exist" in told
    assert asyncio.run(prepared()) == []
