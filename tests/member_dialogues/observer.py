"""What dialogues do beside the applications: topics, records, and questions to the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from kohort.client import AdminClient, NewTopic, Producer
from kohort.client.admin.values import GroupDescription
from kohort.errors import ErrorCode, KafkaError
from kohort.group.subscription import decode_subscription
from kohort.wire.consumer_protocol import decode_subscription as raw_subscription
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DescribedGroup, DescribeGroupsRequest
from kohort.wire.messages.membership import LeaveGroupRequest, MemberIdentity
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.member_dialogues.ours import names
from tests.real_kafka.known import until_coordinator_knows

LEAVE = -1


class Observer:
    """An administrator of one broker, for all dialogues at once."""

    def __init__(self, servers: str) -> None:
        """Take the address of the broker."""
        self._servers = servers
        self._admin = AdminClient(bootstrap_servers=servers)
        self._producer = Producer(bootstrap_servers=servers)

    def __enter__(self) -> Self:
        self._until_coordinators_are_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._admin.close()

    def _until_coordinators_are_ready(self) -> None:
        """Let a new broker make the log of its groups, and load every part of it."""
        groups = tuple(f"group-{number}" for number in range(50))
        with Peer(self._servers) as peer:
            peer.ask(FindCoordinatorRequest(coordinator_keys=("any",)), 4)

            def ready() -> bool:
                answer = peer.ask(DescribeGroupsRequest(groups=groups), 5)
                return all(group.error_code == ErrorCode.NONE for group in answer.groups)

            eventually(ready, "coordinators that are ready")

    def create(self, topics: Mapping[str, int]) -> None:
        """Make topics; returns when the coordinator knows them, too."""
        self._admin.create_topics([NewTopic(name, count) for name, count in topics.items()])
        until_coordinator_knows(self._servers, tuple(topics))

    def grow(self, topics: Mapping[str, int]) -> None:
        """Give topics more partitions."""
        self._admin.create_partitions(topics)

    def produce(self, topic: str, partition: int, count: int) -> None:
        """Put records into a partition."""
        for number in range(count):
            self._producer.send(topic, b"%d" % number, partition=partition)
        self._producer.flush()

    def group(self, group: str) -> GroupDescription:
        """What the coordinator says of a group."""
        try:
            return self._admin.describe_groups([group])[group]
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return GroupDescription(group, "Dead", "", "", ())

    def joined(self, group: str) -> dict[str, list[str]]:
        """What each member said in JoinGroup for the assignor that was chosen."""
        found = {}
        described = self._described(group)
        for member in described.members:
            said = decode_subscription(member.member_metadata)
            version = int.from_bytes(member.member_metadata[:2])
            data = said.user_data.hex() if said.user_data else "none"
            found[member.client_id] = [
                f"{described.protocol_data} version {version}",
                f"topics {' '.join(sorted(said.topics))}",
                f"owns {names(said.owned)}",
                f"generation {raw_subscription(member.member_metadata).generation_id}",
                f"user data {data}",
                f"rack {said.rack_id or 'none'}",
            ]
        return found

    def _described(self, group: str) -> DescribedGroup:
        with Peer(self._servers) as peer:
            (described,) = peer.ask(DescribeGroupsRequest(groups=(group,)), 5).groups
            return described

    def expel(self, group: str, member_id: str, *, is_classic: bool) -> None:
        """Take a member out of its group, which it is not told."""
        with Peer(self._servers) as peer:
            if is_classic:
                identity = MemberIdentity(member_id=member_id)
                left = peer.ask(LeaveGroupRequest(group_id=group, members=(identity,)), 5)
                assert [each.error_code for each in left.members] == [0], left
            else:
                leave = ConsumerGroupHeartbeatRequest(
                    group_id=group, member_id=member_id, member_epoch=LEAVE
                )
                assert peer.ask(leave, 1).error_code == 0
