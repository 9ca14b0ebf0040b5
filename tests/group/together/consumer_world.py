"""A coordinator and KIP-848 members in one process, with a network and virtual time.

Messages are delivered when the test says so, as in `tests.group.together.world`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import cast
from uuid import UUID, uuid5

from kohort.broker.coordination import jobs
from kohort.group.assignors import Assignor, ClusterView
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.decision import ConsumerJob
from kohort.group.coordinator.events import (
    JobDone,
    RequestArrived,
    ShardEvent,
    TopicsChanged,
    Unload,
)
from kohort.group.coordinator.events import Tick as ShardTick
from kohort.group.coordinator.jobs import DraftJobDone
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.group.effects import AssignmentJob
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer import client_assignors
from kohort.group.member.events import JobDone as MemberJobDone
from kohort.group.member.events import Polled, RequestFailed, ResponseArrived, Tick
from kohort.types import TopicPartition
from kohort.wire import group_log
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from tests.group.member.consumer.consumer_member import Stage

GROUP = "delays"
SPACE = UUID(int=848)
Compute = Callable[[AssignmentJob, Mapping[str, Assignor], ClusterView], Mapping[str, bytes]]


class Player:
    """A member with its application and its connection."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.delivered: int | None = None
        self.is_slow = False  # it does not complete its callbacks
        self.answers: deque[ConsumerGroupHeartbeatResponse] = deque()
        self.asked: int | None = None  # a pending request other than a heartbeat (K61)
        self.replies: deque[Message] = deque()
        self.compute: Compute = client_assignors.compute

    @property
    def member_id(self) -> str:
        return self.stage.member.member_id

    def drop_connection(self) -> None:
        """Lose pending messages; the coordinator may have processed a request."""
        self.delivered = None
        self.answers.clear()
        self.asked = None
        self.replies.clear()
        if self.stage.asides:
            self.stage.tell(RequestFailed(self.stage.asides.popleft().token, "closed"))
        if self.stage.requests:
            self.stage.lose_answer()


class ConsumerWorld:
    """One shard, and any number of players."""

    def __init__(self, **topics: int) -> None:
        self.config = CoordinatorConfig(group_consumer_assignment_interval_ms=0)
        self.now = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.players: dict[str, Player] = {}
        self.names: dict[UUID, str] = {}
        self.image = NO_TOPICS
        self._token = 0
        self._born = 0
        self.shard = Shard(self.config)
        self.shard.load_started()
        self.shard.load_finished(self.now)
        self.topics(**topics)

    def topics(self, **counts: int) -> None:
        views = {name: TopicView(uuid5(SPACE, name), count) for name, count in counts.items()}
        self.names.update({view.topic_id: name for name, view in views.items()})
        self.image = TopicsImage.of(views.items(), self.image)
        self.coordinate(TopicsChanged(self.image))

    # ------------------------------------------------------------------------------ coordinator

    def coordinate(self, event: ShardEvent) -> None:
        effects = self.shard.decide(event, self.now)
        for record in effects.records:
            self.log.append(group_log.encode_record(record.key, record.value))
            self.shard.apply(record)
        self.shard.install(effects.session)
        for reply in effects.replies:
            for player in self.players.values():
                if player.delivered == reply.token:
                    assert isinstance(reply.response, ConsumerGroupHeartbeatResponse)
                    player.answers.append(reply.response)
                elif player.asked == reply.token:
                    player.replies.append(reply.response)
        for job in effects.consumer_jobs:
            result = jobs.do(job)
            assert not isinstance(result, DraftJobDone)
            token = cast("ConsumerJob", job).token
            self.coordinate(JobDone(token, job.group_id, result, self.now))

    def reload(self) -> None:
        """Stop the shard, and load a new one from the log; members keep their sessions."""
        self.coordinate(Unload())
        before = self.shard.log
        self.shard = Shard(self.config)
        self.shard.load_started()
        for key, value in self.log:
            record = group_log.decode_record(key, value)
            assert record is not None
            self.shard.apply(record)
        assert self.shard.log == before
        self.coordinate(TopicsChanged(self.image))
        self.shard.load_finished(self.now)

    # ---------------------------------------------------------------------------------- members

    def start(
        self, name: str, instance: str | None = None, assignors: Sequence[Assignor] = ()
    ) -> Player:
        self._born += 1
        config = MemberConfig(
            group_id=GROUP, group_instance_id=instance, max_poll_interval_ms=60_000
        )
        member_id = f"{name}-{self._born}"
        stage = Stage(config, member_id=member_id, names=self.names, assignors=assignors)
        stage.now = self.now
        self.players[name] = Player(stage)
        return self.players[name]

    def work(self, player: Player) -> bool:
        """Take the first possible step of a player; return False if there is none."""
        stage = player.stage
        stage.now = self.now
        if stage.looking_up:
            stage.find()
        elif player.answers:
            player.delivered = None
            answer = player.answers.popleft()
            stage.answer(
                answer.member_epoch,
                answer.assignment,
                code=answer.error_code,
                member_id=answer.member_id,
                interval_ms=answer.heartbeat_interval_ms,
                computes=answer.should_compute_assignment,
                word=answer.assignment_metadata,
            )
        elif stage.requests and player.delivered is None:
            self._deliver(player)
        elif stage.callbacks and not player.is_slow:
            stage.called()
        elif player.replies:
            player.asked = None
            response = player.replies.popleft()
            stage.tell(ResponseArrived(stage.asides.popleft().token, response))
        elif stage.jobs:
            job = stage.jobs.popleft()
            assert isinstance(job, AssignmentJob)  # no member here has an own assignor
            self._compute(player, job)
        elif stage.asides and player.asked is None:
            player.asked = self._token + 1
            self._send(player, stage.asides[0].request, 0)
        else:
            return False
        return True

    def _compute(self, player: Player, job: AssignmentJob) -> None:
        """Have a member compute the group's assignment, or fail to."""
        view = ClusterView(job.partitions or {})
        try:
            made = player.compute(job, player.stage.member.assignors, view)
        except ValueError as error:
            player.stage.tell(MemberJobDone(job.token, None, str(error)))
        else:
            player.stage.tell(MemberJobDone(job.token, made))

    def _deliver(self, player: Player) -> None:
        player.delivered = self._token + 1
        self._send(player, player.stage.heartbeat, 1)

    def _send(self, player: Player, request: Message, version: int) -> None:
        self._token += 1
        self.coordinate(
            RequestArrived(
                token=self._token,
                request=request,
                version=version,
                client_id=player.member_id,
                client_host="/127.0.0.1",
                unique_id=str(self._token),
                wall_ms=self.now,
            )
        )

    # ---------------------------------------------------------------------------------- running

    def settle(self) -> None:
        """Deliver all pending messages, without letting time pass."""
        for _ in range(10_000):
            if not sum(self.work(player) for player in list(self.players.values())):
                return
        raise AssertionError("the group does not come to rest")

    def wait(self, milliseconds: int) -> None:
        """Let time pass, without delivering messages."""
        self.now += milliseconds
        while (due := self.shard.next_deadline()) is not None and due <= self.now:
            self.coordinate(ShardTick(self.now))
        for player in self.players.values():
            player.stage.now = self.now
            while (due := player.stage.member.next_deadline()) is not None and due <= self.now:
                player.stage.tell(Tick())

    def advance(self, milliseconds: int) -> None:
        """Let time pass in steps of a second; all messages are delivered, and all members poll."""
        for _ in range(milliseconds // 1_000):
            self.wait(1_000)
            for player in list(self.players.values()):
                player.stage.tell(Polled())
            self.settle()

    # -------------------------------------------------------------------------------- questions

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Return the believed owners of each partition, among members known to the coordinator."""
        group = self.shard.log.consumer_groups.get(GROUP)
        members = group.members if group is not None else {}
        owners: dict[TopicPartition, list[str]] = {}
        for name, player in sorted(self.players.items()):
            if player.member_id in members:
                for partition in player.stage.believes:
                    owners.setdefault(partition, []).append(name)
        return owners
