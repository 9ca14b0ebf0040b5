"""Talk to one shard about a draft group, request by request, in virtual time.

The coordinator's assignments are jobs: `job` computes the oldest one that waits, `get` and `joined`
compute all.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from kohort.group.coordinator import jobs
from kohort.group.coordinator.draft.kind import group_of
from kohort.group.coordinator.events import TopicsChanged
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.state import ShardSession
from kohort.group.coordinator.topics import TopicsImage, TopicView
from kohort.group.effects import Effects
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire import group_log
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from tests.group.coordinator.dialogue import GROUP, Dialogue

TOPICS = {"flights": 4, "delays": 2}


class DraftDialogue(Dialogue):
    """A ready shard that knows two topics."""

    def __init__(self, **settings: Any) -> None:
        self.counts = dict(TOPICS)
        self.waiting: deque[DraftAssignmentJob] = deque()
        super().__init__(**settings)

    def loaded(self, **settings: Any) -> Shard:
        """Load a shard, which gets the topics before it has read its log."""
        self.waiting.clear()
        shard = Shard(replace(self.config, **settings))
        shard.install(shard.decide(self.topics_event(), self.now).session)
        shard.load_started()
        for key, value in self.log:
            record = group_log.decode_record(key, value)
            assert record is not None
            shard.apply(record)
        self.observed += shard.load_finished(self.now)
        return shard

    def note_jobs(self, effects: Effects[ShardSession]) -> None:
        """Keep assignments to compute until the test wants them."""
        self.waiting += effects.draft_jobs

    def topics_event(self) -> TopicsChanged:
        """Return the event with the topics."""
        views = (
            (name, TopicView(uuid5(NAMESPACE_DNS, name), count))
            for name, count in self.counts.items()
        )
        return TopicsChanged(TopicsImage.of(views, TopicsImage()))

    def count(self, **counts: int) -> None:
        """Set the numbers of partitions of topics."""
        self.counts |= counts
        self.run(self.topics_event())

    # ------------------------------------------------------------------------------- requests

    def ask_join(self, consumer_id: str = "", **more: Any) -> int:
        """Send a JoinGroup; return its token."""
        request = DraftJoinGroupRequest(
            group_id=more.pop("group_id", GROUP),
            consumer_host=more.pop("host", "host"),
            session_timeout_ms=more.pop("session", 10_000),
            heartbeat_frequency=more.pop("frequency", 3),
            topics=more.pop("topics", ("flights",)),
            consumer_id=consumer_id,
        )
        return self.ask(request, 0, **more)

    def job(self) -> None:
        """Compute the oldest waiting assignment."""
        job = self.waiting.popleft()
        self.run(DraftJobDone(job, jobs.compute(job)))

    def work(self) -> None:
        """Compute all waiting assignments."""
        while self.waiting:
            self.job()

    def joined(self, *tokens: int) -> list[Any]:
        """Compute the assignments; return the responses to these joins, which must exist then."""
        self.work()
        return [self.answers[token] for token in tokens]

    def ping(self, consumer_id: str, generation: int) -> int:
        """Send a heartbeat; return the error code of the response."""
        request = DraftHeartbeatRequest(
            group_id=GROUP, group_generation_id=generation, consumer_id=consumer_id
        )
        code: int = self.get(request, 0).error_code
        return code

    def commit(self, consumer_id: str, generation: int, offset: int = 7) -> int:
        """Commit one offset; return the error code of the response."""
        offsets = {TopicPartition("flights", 0): OffsetAndMetadata(offset)}
        identity = CommitIdentity(consumer_id, generation)
        answer = self.get(commit_request(GROUP, identity, None, offsets), 9)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    # ----------------------------------------------------------------------------- situations

    @property
    def state(self) -> str:
        if GROUP in self.shard.session.groups:
            return super().state
        return group_of(self.shard.session, self.shard.log, GROUP).state.value

    @property
    def generation(self) -> int:
        return group_of(self.shard.session, self.shard.log, GROUP).generation

    def steady(self, *hosts: str, **more: Any) -> list[str]:
        """Create a steady group with a consumer on each of these hosts; return their ids."""
        ids: list[str] = []
        for host in hosts:
            tokens = [self.ask_join(host=host, **more)]
            tokens += [self.ask_join(each, host=at) for each, at in zip(ids, hosts, strict=False)]
            new, *_ = self.joined(*tokens)
            ids.append(new.consumer_id)
        assert self.state == "Steady"
        return ids


def owned(answer: Any) -> list[tuple[str, int]]:
    """Return the partitions in the response to a join."""
    return [(each.topic, each.partition) for each in answer.partitions_to_own]
