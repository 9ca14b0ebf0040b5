"""A member of a classic group: as leader, it watches the group's topics and assigns them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kohort.client.blocking.executor import run_in_thread
from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.membership.shell import Membership
from kohort.client.consumer.membership.unread_topics import warn_of_unread
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.metadata import ClusterMetadata
from kohort.client.net.transport import now_ms
from kohort.errors import ErrorCode, KohortError
from kohort.group.assignors import ClusterView, RackedClusterView
from kohort.group.effects import MemberJob, SubscriptionJob
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember, ClassicMemberState
from kohort.group.member.events import MemberEvent, RejoinAsked
from kohort.wire.codec.schema import Message
from kohort.wire.messages.membership import HeartbeatResponse, SyncGroupResponse

log = logging.getLogger("kohort.client")


class ClassicMembership(Membership):
    """One member of one classic group; see `Membership`."""

    member: ClassicMember

    def __init__(
        self,
        member: ClassicMember,
        cluster: Cluster,
        coordinator: Coordinator,
        config: ConsumerConfig,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(member, cluster, coordinator, config, on_change)
        self._counts: Mapping[str, int] | None = None
        self._may_lack = config.group_instance_id is not None
        self._heard_at = now_ms()
        _warn_of_short_polls(config)
        cluster.on_metadata.append(self._check_partitions)

    def run(self, event: MemberEvent, cause: Exception | None = None) -> None:
        """Run an event as in `Membership.run`; learn the topics to watch as leader.

        Watching other topics does not count as a change of partitions.
        """
        watched = self.member.group_topics
        super().run(event, cause)
        if self.member.group_topics != watched:
            self._counts = None
        if self.member.group_topics - watched:
            self._start(self._learn(self.member.group_topics))
        if self._may_lack and self.member.session.state is ClassicMemberState.STABLE:
            self._may_lack = False
            self._look_for_unread()

    @property
    def is_session_over(self) -> bool:
        """Whether the coordinator may have removed the member: the session timeout has passed.

        Counts from the sending time of the last answered request, because the coordinator starts
        counting later.
        """
        return now_ms() - self._heard_at >= self._config.session_timeout_ms

    def _note_heard(self, response: Message, sent_at: int) -> None:
        """Note the time; in a rebalance the coordinator counts from heartbeats, not SyncGroup."""
        good = [ErrorCode.NONE]
        if isinstance(response, HeartbeatResponse):
            good.append(ErrorCode.REBALANCE_IN_PROGRESS)
        elif not isinstance(response, SyncGroupResponse):
            return
        if response.error_code in good:
            self._heard_at = max(self._heard_at, sent_at)

    def _look_for_unread(self) -> None:
        """Check whether a static member lacks topics permanently, the first time it has joined."""
        instance, session = self._config.group_instance_id, self.member.session
        lacking = session.topics - {each.topic for each in session.owned}
        if lacking and instance is not None:
            deadline = Deadline(self._config.default_api_timeout_ms)
            look = warn_of_unread(self._cluster, self._coordinator, instance, lacking, deadline)
            self._start(look)

    async def _done(self, job: MemberJob) -> Mapping[str, bytes]:
        """Return each member's assignment as leader, or the user data of the assignors."""
        if isinstance(job, SubscriptionJob):
            what = f"subscription_user_data for group {self._group}"
            return await run_in_thread(
                lambda: leader.subscription_user_data(job, self.member.assignors), what
            )
        self._may_lack = False  # this member's own assignment is complete
        topics = leader.topics(job)
        deadline = Deadline(self._cluster.config.default_api_timeout_ms)
        await self._cluster.ensure_topics(topics, deadline)
        view = cluster_view(self._cluster.metadata, topics)
        if leader.unknown_claims(job, view):
            await self._cluster.refresh(deadline)
            view = cluster_view(self._cluster.metadata, topics)
        self._counts = dict(view.partitions)
        what = f"assignor {job.assignor} of group {self._group}"
        return await run_in_thread(lambda: leader.compute(job, self.member.assignors, view), what)

    async def _learn(self, topics: frozenset[str]) -> None:
        """Watch topics, even as a leader that has nothing to assign (KIP-814)."""
        try:
            await self._cluster.ensure_topics(topics, Deadline(None))
        except KohortError as error:
            text = f"topics of group {self._group} cannot be watched by its leader: {error}"
            self._cluster.incidents.say(text)
        self._check_partitions()

    def _check_partitions(self) -> None:
        """As leader, rebalance when the group's topics or their partitions change."""
        member = self.member
        topics = member.group_topics
        if not topics:
            self._counts = None
        elif topics <= self._cluster.metadata.topics.keys():
            present = _count(self._cluster.metadata, topics)
            if self._counts is not None and present != self._counts:
                self._counts = present
                self.run(RejoinAsked("the partitions of a subscribed topic changed"))
            elif self._counts is None and member.session.job is None:
                self._counts = present


def _warn_of_short_polls(config: ConsumerConfig) -> None:
    """Warn about settings with which a heartbeat may report a rebalance too late.

    Java's client accepts such settings; librdkafka requires max.poll.interval.ms to be at least
    session.timeout.ms.
    """
    if config.max_poll_interval_ms <= config.heartbeat_interval_ms:
        log.warning(
            "group %s: max.poll.interval.ms (%d ms) is not above heartbeat.interval.ms (%d ms): a"
            " rebalance waits only that long for members to join, and a member that learns of"
            " it later is removed and loses its partitions. Lower heartbeat.interval.ms, or"
            " raise max.poll.interval.ms",
            config.group_id,
            config.max_poll_interval_ms,
            config.heartbeat_interval_ms,
        )


def cluster_view(metadata: ClusterMetadata, topics: frozenset[str]) -> ClusterView:
    """Return the view of an assignor: topic sizes, and racks if brokers have them (KIP-881)."""
    counts = _count(metadata, topics)
    rack_of = {node.node_id: node.rack for node in metadata.nodes.values() if node.rack}
    if not rack_of:
        return ClusterView(counts)
    racks = {
        name: [
            frozenset(rack_of[node] for node in partition.replicas if node in rack_of)
            for _, partition in sorted(metadata.topics[name].partitions.items())
        ]
        for name in counts
    }
    return RackedClusterView(counts, racks)


def _count(metadata: ClusterMetadata, topics: frozenset[str]) -> dict[str, int]:
    return {
        name: len(topic.partitions)
        for name, topic in metadata.topics.items()
        if name in topics and topic.partitions
    }
