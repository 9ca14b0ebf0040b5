"""What a stream application refuses to run with, by name, on both brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from msgspec import structs

from kohort import AsyncConsumer, AsyncProducer, TopicPartition
from kohort.errors import ConfigError
from kohort.streams import App
from kohort.streams.app.instance import ProgramInstance
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import SubTopology, Topology
from kohort.streams.errors import (
    ChangelogTruncatedError,
    InternalTopicError,
    MissingTopicError,
    NotCoPartitionedError,
    StateInUseError,
    StreamsError,
    TaskFailedError,
)
from kohort.streams.runtime import restoring
from kohort.streams.runtime.directory import hold_state
from kohort.streams.runtime.interface import Application
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings
from tests.broker.processes import eventually
from tests.real_kafka.foreign import TIMEOUT_S, create_topic
from tests.streams.counting import Running, counting, running
from tests.streams.feeding import Case
from tests.streams.runtime.test_running import SETTINGS

pytestmark = pytest.mark.timeout(240)


async def _refused(application: Application, address: str, error: type[StreamsError]) -> str:
    with pytest.raises(error) as caught:
        async with asyncio.timeout(90):
            await Running(application, address, SETTINGS).job
    return str(caught.value)


def delete(address: str, topic: str) -> None:
    """Delete a topic, and wait until brokers that answer for it have heard of that."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    eventually(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "it is gone")


def test_an_input_topic_that_is_missing(servers: str) -> None:
    case = Case(servers)
    application = structs.replace(
        case.application(), topology=Topology([SubTopology((case.input, "nobody-made-this"))])
    )
    text = asyncio.run(_refused(application, servers, MissingTopicError))
    assert "nobody-made-this" in text


def test_input_topics_that_are_not_copartitioned(servers: str) -> None:
    case = Case(servers)
    other = create_topic(servers, f"{case.name}-other", case.tasks + 1)
    application = structs.replace(
        case.application(), topology=Topology([SubTopology((case.input, other))])
    )
    text = asyncio.run(_refused(application, servers, NotCoPartitionedError))
    assert f"{case.input} has 4, {other} has 5" in text


def test_a_changelog_with_other_partitions(servers: str) -> None:
    case = Case(servers)
    create_topic(servers, f"{case.name}-counts-changelog", 3, cleanup_policy="compact")
    text = asyncio.run(_refused(case.application(), servers, InternalTopicError))
    assert "has 3 partitions and must have 4" in text
    assert f"If the application never wrote to it, delete {case.name}-counts-changelog" in text


def test_a_changelog_that_deletes(servers: str) -> None:
    case = Case(servers)
    create_topic(servers, f"{case.name}-counts-changelog", case.tasks)
    text = asyncio.run(_refused(case.application(), servers, InternalTopicError))
    assert "cleanup.policy=delete and must have compact" in text


async def _processed(case: Case) -> None:
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        await case.send(producer, 200)
    async with running(case.application(), case.address, SETTINGS):
        await case.check_exact()


def test_a_changelog_that_is_gone(servers: str) -> None:
    case = Case(servers)
    asyncio.run(_processed(case))
    delete(servers, f"{case.name}-counts-changelog")
    text = asyncio.run(_refused(case.application(), servers, MissingTopicError))
    assert f"{case.name}-counts-changelog" in text


def test_a_group_of_its_name_that_is_another_consumer_s(servers: str) -> None:
    case = Case(servers)
    asyncio.run(_used_by_another(case))
    text = asyncio.run(_refused(case.application(), servers, MissingTopicError))
    assert f"neither {case.name}-control nor {case.name}-counts-changelog exist" in text
    assert "those of another consumer" in text


async def _used_by_another(case: Case) -> None:
    place = TopicPartition(case.input, 0)
    async with (
        AsyncProducer(bootstrap_servers=case.address) as producer,
        AsyncConsumer(bootstrap_servers=case.address, group_id=case.name) as consumer,
    ):
        await case.send(producer, 20)
        await producer.flush()
        consumer.assign([place])
        await consumer.commit({place: 1})


def test_a_group_of_its_name_in_which_brokers_assign(servers: str) -> None:
    """They would let an instance in, and give it nothing that it understands."""
    asyncio.run(_assigned_by_brokers(Case(servers)))


async def _assigned_by_brokers(case: Case) -> None:
    async with AsyncConsumer(
        bootstrap_servers=case.address, group_id=case.name, group_protocol="consumer"
    ) as consumer:
        consumer.subscribe([case.output])
        while not consumer.assignment():
            await consumer.poll(100)
        text = await _refused(case.application(), case.address, StreamsError)
        assert f"group {case.name} has members of the consumer protocol (KIP-848)" in text
        assert "give the application another name" in text


def test_a_changelog_that_lost_its_end(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "_APPEARS_S", 0.5)
    case = Case(servers)
    asyncio.run(_processed(case))
    delete(servers, f"{case.name}-counts-changelog")
    create_topic(servers, f"{case.name}-counts-changelog", case.tasks, cleanup_policy="compact")
    asyncio.run(_truncated(case))


async def _truncated(case: Case) -> None:
    one = Running(case.application(), case.address, SETTINGS)
    await one.until(lambda: len(one.events) > case.tasks)
    one.instance.stop()
    with pytest.raises(TaskFailedError, match="changes of state are lost") as caught:
        await one.job
    assert isinstance(caught.value.__cause__, ChangelogTruncatedError)


def test_a_checkpoint_behind_the_end_of_its_changelog(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "_APPEARS_S", 0.5)
    case = Case(servers)
    folder = tmp_path / "0_0"
    folder.mkdir()
    (folder / "checkpoint").write_text(f'[["{case.name}-counts-changelog", 0, 7]]')
    asyncio.run(_ahead(case, tmp_path))


async def _ahead(case: Case, folder: Path) -> None:
    one = Running(case.application(folder), case.address, SETTINGS)
    await one.until(lambda: "TaskFailed" in {each.kind for each in one.events})
    one.instance.stop()
    with pytest.raises(TaskFailedError, match="delete the state directory"):
        await one.job


def test_settings_that_the_runtime_needs_for_itself() -> None:
    application = counting("a", "t", "o")
    with pytest.raises(ConfigError, match="enable_auto_commit, group_id itself"):
        StreamsInstance(application, clients={"group_id": "g", "enable_auto_commit": True})


@pytest.mark.parametrize("name", ["process_budget", "poll_ms", "learner_records_per_s"])
def test_settings_out_of_their_range(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} = 0"):
        structs.replace(StreamSettings(), **{name: 0})


def test_a_state_directory_that_another_instance_has(tmp_path: Path) -> None:
    app = App("taken")
    app.topic("in", key=str, value=str).count(name="n")

    def instance() -> ProgramInstance:
        return app.instance(bootstrap_servers="127.0.0.1:1", state_dir=tmp_path)

    async def started() -> None:
        async with asyncio.timeout(30):
            await instance().run()

    with hold_state(tmp_path, "taken"), pytest.raises(StateInUseError, match="of its own"):
        asyncio.run(started())
    with hold_state(tmp_path, "taken"):
        """It is free again."""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_warmup_learners": 0}, "max_warmup_learners = 0, must be at least 1, or None"),
        ({"stream_imbalance_percentage": 20}, "must be from 0 to 1 \\(0.2 is 20 %\\)"),
        ({"handover": "never"}, 'must be "until-grant" or "draft"'),
    ],
)
def test_settings_of_learners_that_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LearnerSettings(**given)
