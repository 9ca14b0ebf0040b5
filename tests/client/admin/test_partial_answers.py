"""Results of admin calls when one of two brokers, or one of two partitions, fails."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from kohort import AdminClient, TopicPartition
from kohort.cli.main import app
from kohort.client import AsyncAdminClient, NewTopic
from kohort.errors import ErrorCode, PartialFailureError
from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from kohort.wire.messages.offsets import OffsetFetchResponse
from tests.client.cutting_proxy import CuttingProxy

OTHER = 4711
OFFSET_FETCH = 9


class Refusing(CuttingProxy):
    """Plays a second broker, which does not list groups."""

    def answer_itself(self, frame: bytes) -> bytes | None:
        received = frames.decode_request(memoryview(frame))
        if not isinstance(received.message, ListGroupsRequest):
            return None
        refused = ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, groups=())
        return bytes(frames.encode_response(refused, received.version, received.correlation_id))


class Joined(CuttingProxy):
    """Plays the first broker; its metadata also names the second one."""

    other = 0

    def _renamed(self, frame: bytes, version: int, number: int) -> bytes:
        whole = super()._renamed(frame, version, number)[4:]
        response = frames.decode_response(MetadataResponse, version, memoryview(whole))
        second = MetadataResponseBroker(node_id=OTHER, host="127.0.0.1", port=self.other, rack=None)
        both = replace(response, brokers=(*response.brokers, second))
        return bytes(frames.encode_response(both, version, number))


class Hiding(CuttingProxy):
    """Plays a broker whose user may not see partition 1."""

    version = 0

    def answer_itself(self, frame: bytes) -> None:
        key, version, _ = frames.peek_request(memoryview(frame))
        self.version = version if key == OFFSET_FETCH else self.version

    def changed(self, key: int, frame: bytes) -> bytes:
        if key != OFFSET_FETCH:
            return frame
        answer = frames.decode_response(OffsetFetchResponse, self.version, memoryview(frame))
        number = frames.correlation_id_of(memoryview(frame))
        return bytes(frames.encode_response(_hidden(answer), self.version, number)[4:])


def _hidden(answer: OffsetFetchResponse) -> OffsetFetchResponse:
    (group,) = answer.groups
    (topic,) = group.topics
    partitions = tuple(
        replace(each, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED * each.partition_index)
        for each in topic.partitions
    )
    topics = (replace(topic, partitions=partitions),)
    return replace(answer, groups=(replace(group, topics=topics),))


@pytest.fixture
def servers(bootstrap: str) -> Iterator[str]:
    with Refusing(bootstrap, lambda _: False) as second, Joined(bootstrap, lambda _: False) as one:
        one.other = int(second.bootstrap_servers.rpartition(":")[2])
        yield one.bootstrap_servers


def ask(servers: str) -> None:
    with AdminClient(bootstrap_servers=servers) as admin:
        admin.list_groups()


def ask_on_a_loop(servers: str) -> None:
    async def work() -> None:
        async with AsyncAdminClient(bootstrap_servers=servers) as admin:
            await admin.list_groups()

    asyncio.run(work())


@pytest.fixture
def group(bootstrap: str) -> str:
    """A group with two offsets of a topic with the same name."""
    name = f"g-{uuid.uuid4().hex}"
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
        admin.alter_group_offsets({TopicPartition(name, number): 0 for number in (0, 1)}, name)
    return name


@pytest.mark.parametrize("call", [ask, ask_on_a_loop])
def test_one_broker_that_refuses_costs_no_group_of_another(
    servers: str, group: str, call: Callable[[str], None]
) -> None:
    with pytest.raises(PartialFailureError, match="CLUSTER_AUTHORIZATION_FAILED") as failed:
        call(servers)
    assert [*failed.value.errors] == [OTHER]
    (listed,) = failed.value.results.values()
    assert isinstance(listed, list)
    assert group in {each.group_id for each in listed}


def test_the_command_lists_the_others_and_says_which_broker_failed(
    servers: str, group: str
) -> None:
    done = CliRunner().invoke(app, ["groups", "list", "-b", servers])
    assert done.exit_code == 1
    assert group in done.stdout
    assert f"the groups of broker {OTHER} are not listed: CLUSTER_AUTHORI" in done.stderr
    done = CliRunner().invoke(app, ["groups", "list", "-b", servers, "--json"])
    assert group in {each["group"] for each in json.loads(done.stdout)["groups"]}


def test_a_partition_that_may_not_be_seen_costs_no_other(bootstrap: str, group: str) -> None:
    both = [TopicPartition(group, number) for number in (0, 1)]
    with (
        Hiding(bootstrap, lambda _: False) as proxy,
        AdminClient(bootstrap_servers=proxy.bootstrap_servers) as admin,
        pytest.raises(PartialFailureError, match="TOPIC_AUTHORIZATION_FAILED") as failed,
    ):
        admin.list_group_offsets(group, both)
    assert [*failed.value.errors] == [both[1]]
    assert [*failed.value.results] == [both[0]]
