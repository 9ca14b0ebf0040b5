"""Talk to one shard, request by request, in virtual time."""

from __future__ import annotations

from typing import Any

from kohort.broker.coordination import jobs
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import RequestArrived, ShardEvent, Tick, Unload
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.state import ShardSession
from kohort.group.effects import Effects
from kohort.group.events import GroupEvent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire import group_log
from kohort.wire.codec.schema import Message
from kohort.wire.messages.groups import DescribedGroup, DescribeGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP = "g"
WALL = 1_357_000_000_000


class Answers(dict[int, Any]):
    """Responses by the token of their request; most tests access only existing ones."""

    def __missing__(self, token: int) -> Any:
        raise AssertionError(f"request {token} is not answered yet")


class Dialogue:
    """A ready shard; `answers` has the response to each request, by its token."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 100)
        self.config = CoordinatorConfig(**settings)
        self.now = 0
        self.set_back_ms = 0  # how far the wall clock was set back
        self.tokens = 0
        self.answers = Answers()
        self.observed: list[GroupEvent] = []
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self.loaded()

    @property
    def wall_ms(self) -> int:
        """Return the wall clock time in milliseconds."""
        return WALL + self.now - self.set_back_ms

    def loaded(self, **settings: Any) -> Shard:
        shard = Shard(replace(self.config, **settings))
        shard.load_started()
        for key, value in self.log:
            record = group_log.decode_record(key, value)
            assert record is not None
            shard.apply(record)
        self.observed += shard.load_finished(self.now)
        return shard

    def reload(self, **settings: Any) -> None:
        self.run(Unload())
        before = self.shard.log
        self.shard = self.loaded(**settings)
        assert self.shard.log == before

    def run(self, event: ShardEvent) -> None:
        """Process an event and its effects."""
        self.note_jobs(self._done(event))

    def note_jobs(self, effects: Effects[ShardSession]) -> None:
        """Run or keep the jobs; a classic group has none."""

    def _done(self, event: ShardEvent) -> Effects[ShardSession]:
        before = (self.shard.log, self.shard.session)
        effects = self.shard.decide(event, self.now)
        assert (self.shard.log, self.shard.session) == before, "decide changed something"
        for record in effects.records:
            self.log.append(group_log.encode_record(record.key, record.value))
            self.shard.apply(record)
        self.shard.install(effects.session)
        self.observed += effects.observed
        for reply in effects.replies:
            assert reply.token not in self.answers, "answered twice"
            self.answers[reply.token] = reply.response
        return effects

    def ask(self, request: Message, version: int | None = None, client_id: str = "c") -> int:
        """Send a request; return its token, the key of the present or later response."""
        self.tokens += 1
        self.run(
            RequestArrived(
                token=self.tokens,
                request=request,
                version=type(request).max_version if version is None else version,
                client_id=client_id,
                client_host="/127.0.0.1",
                unique_id=f"id{self.tokens}",
                wall_ms=self.wall_ms,
                regex_error=jobs.regex_error(request, self.shard.config.group_member_max_bytes),
            )
        )
        self.expire()
        return self.tokens

    def get(self, request: Message, version: int | None = None) -> Any:
        """Send a request that is answered at once."""
        return self.answers[self.ask(request, version)]

    def expire(self) -> None:
        while (due := self.shard.next_deadline()) is not None and due <= self.now:
            self.run(Tick(self.wall_ms))

    def advance(self, milliseconds: int) -> None:
        """Let time pass, stopping at each deadline on the way."""
        end = self.now + milliseconds
        while (due := self.shard.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.run(Tick(self.wall_ms))
        self.now = end

    # ------------------------------------------------------------------------------- requests

    def join(self, member_id: str = "", **more: Any) -> int:
        version = more.pop("version", 9)
        protocols = more.pop("protocols", (("range", b"m"),))
        request = JoinGroupRequest(
            group_id=more.pop("group_id", GROUP),
            session_timeout_ms=more.pop("session", 10_000),
            rebalance_timeout_ms=more.pop("rebalance", 30_000),
            member_id=member_id,
            group_instance_id=more.pop("instance", None),
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=tuple(JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols),
            reason=more.pop("reason", None),
        )
        return self.ask(request, version, **more)

    def new_id(self, **more: Any) -> str:
        """KIP-394: get a member id."""
        member_id: str = self.answers[self.join(**more)].member_id
        return member_id

    def sync_token(
        self, member_id: str, generation: int, given: dict[str, bytes], **more: Any
    ) -> int:
        group = self.shard.session.group(self.shard.log, GROUP)
        more.setdefault("protocol_type", group.protocol_type)
        more.setdefault("protocol_name", group.protocol or "")
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in given.items()
            ),
            **more,
        )
        return self.ask(request)

    def sync(self, member_id: str, generation: int, **given: bytes) -> Any:
        return self.answers[self.sync_token(member_id, generation, given)]

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        code: int = self.get(request).error_code
        return code

    def leave(self, *members: tuple[str, str | None]) -> Any:
        identities = tuple(
            MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members
        )
        return self.get(LeaveGroupRequest(group_id=GROUP, members=identities))

    def describe(self, version: int = 6) -> DescribedGroup:
        group: DescribedGroup = self.get(DescribeGroupsRequest(groups=(GROUP,)), version).groups[0]
        return group

    @property
    def state(self) -> str:
        return self.shard.session.group(self.shard.log, GROUP).state.value

    # ----------------------------------------------------------------------------- situations

    def stable(self, *names: str, **more: Any) -> list[str]:
        """Create a stable group of static ("s...") and dynamic members; the first one leads."""
        ids = [
            "" if name.startswith("s") else self.new_id(client_id=name, **more) for name in names
        ]
        tokens = [
            self.join(member_id, client_id=name, instance=name if not member_id else None, **more)
            for name, member_id in zip(names, ids, strict=True)
        ]
        self.advance(200)  # once more after a member joined
        members = self.settle(tokens)
        assert self.state == "Stable"
        return members

    def settle(self, tokens: list[int]) -> list[str]:
        """Complete a rebalance with these parked joins; assign each member its own id."""
        answers = [self.answers[token] for token in tokens]
        assert [answer.error_code for answer in answers] == [0] * len(answers)
        generation = answers[0].generation_id
        ids = [answer.member_id for answer in answers]
        leader = answers[0].leader
        given = {member_id: member_id.encode() for member_id in ids}
        waiting = [self.sync_token(m, generation, {}) for m in ids if m != leader]
        waiting.append(self.sync_token(leader, generation, given))
        assert [self.answers[token].error_code for token in waiting] == [0] * len(waiting)
        return ids


def position(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)
