"""A group whose members have their own assignors, driven request by request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.errors import ErrorCode
from kohort.group.events import AssignorFellBack
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
    InstalledMember,
)
from kohort.wire.messages.consumer_group import ClientAssignor
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue, Partitions
from tests.group.coordinator.dialogue import GROUP

MINE = (ClientAssignor(name="mine", maximum_version=1, version=1, metadata=b"load"),)


class AssignorDialogue(ConsumerDialogue):
    """The test plays all members, and the assignor of the chosen one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.topics(t=4)

    def asked(self, member_id: str, *topics: str, **more: Any) -> bool:
        """Join with an own assignor; return whether the response asks to compute."""
        more.setdefault("client_assignors", MINE)
        return self.enter(member_id, *(topics or ("t",)), **more).should_compute_assignment

    def beats(self, member_id: str) -> bool:
        """Send a plain heartbeat; return whether the response asks to compute."""
        answer = self.heartbeat(member_id, self.member(member_id).epoch)
        return answer.should_compute_assignment

    def prepare(
        self, member_id: str, epoch: int | None = None, group_id: str = GROUP
    ) -> ConsumerGroupPrepareAssignmentResponse:
        if epoch is None:
            epoch = self.member(member_id).epoch
        answer: ConsumerGroupPrepareAssignmentResponse = self.get(
            ConsumerGroupPrepareAssignmentRequest(
                group_id=group_id, member_id=member_id, member_epoch=epoch
            )
        )
        return answer

    def install(
        self, member_id: str, given: Mapping[str, Partitions], **more: Any
    ) -> ConsumerGroupInstallAssignmentResponse:
        """Send a result that is checked at once."""
        answer: ConsumerGroupInstallAssignmentResponse = self.answers[
            self.install_token(member_id, given, **more)
        ]
        return answer

    def install_token(self, member_id: str, given: Mapping[str, Partitions], **more: Any) -> int:
        """Send a result; `given` has the partitions of each member by topic name."""
        more.setdefault("member_epoch", self.member(member_id).epoch)
        more.setdefault("group_epoch", self.group.epoch)
        members = tuple(
            InstalledMember(
                member_id=each, topic_partitions=self.by_id(held), metadata=each.encode()
            )
            for each, held in given.items()
        )
        more.setdefault("members", members)
        return self.ask(
            ConsumerGroupInstallAssignmentRequest(group_id=GROUP, member_id=member_id, **more)
        )

    def made(self, member_id: str, given: Mapping[str, Partitions]) -> None:
        """Have the chosen member compute the assignment."""
        assert self.prepare(member_id).error_code == ErrorCode.NONE
        assert self.install(member_id, given).error_code == ErrorCode.NONE

    def is_asking(self) -> bool:
        return GROUP in self.shard.session.consumer.computing

    @property
    def fell_back(self) -> list[str]:
        """Return why the coordinator's assignor took over."""
        return [each.reason for each in self.observed if isinstance(each, AssignorFellBack)]

    def is_made(self) -> bool:
        """Whether the target is that of the group's epoch."""
        return self.group.assignment_epoch == self.group.epoch
