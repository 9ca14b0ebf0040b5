"""A member of the consumer protocol (KIP-848): it looks up topic names, and may assign."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Mapping

from kohort.client.blocking.executor import run_in_thread
from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.membership.shell import Membership
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.metadata import from_response
from kohort.errors import KohortError
from kohort.group.assignors.interface import ClusterView
from kohort.group.effects import MemberJob, SubscriptionJob
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.consumer import client_assignors
from kohort.group.member.consumer.machine import ConsumerMember
from kohort.group.member.events import MemberEvent, TopicsNamed
from kohort.wire.messages.client_assignors import ConsumerGroupPrepareAssignmentRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

log = logging.getLogger("kohort.client")

# Ends in a `.*` that is neither escaped nor part of a single alternative.
_OPEN_END = re.compile(r"(?:[^|\\]|\\.)*(?<!\\)\.\*")


class ConsumerMembership(Membership):
    """One member of one group of the consumer protocol; see `Membership`."""

    coordinator_decides = True
    member: ConsumerMember

    def __init__(
        self,
        member: ConsumerMember,
        cluster: Cluster,
        coordinator: Coordinator,
        config: ConsumerConfig,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(member, cluster, coordinator, config, on_change)
        self._asking_names = False
        cluster.on_metadata.append(self._learn_names)

    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None:
        """Subscribe as in `Membership.subscribe`.

        A member that has failed permanently is replaced by a new one, so that an application can
        correct its subscription.
        """
        failed = self.member
        if failed.is_failed and (topics or pattern is not None):
            first_token = failed.session.next_token
            assignors = tuple(failed.assignors.values())
            self.member = ConsumerMember(failed.config, new_member_id(), first_token, assignors)
        super().subscribe(topics, None if pattern is None else whole_name(pattern))

    @property
    def asks_as(self) -> CommitIdentity | None:
        """Return the identity for offset queries, which a member must give (L37)."""
        return self.member.identity if self.member.session.is_member else None

    def run(self, event: MemberEvent, cause: Exception | None = None) -> None:
        """Run an event as in `Membership.run`."""
        super().run(event, cause)
        self._learn_names()

    # ---------------------------------------------------------------------- names of topics

    def _learn_names(self) -> None:
        """Look up the names of topics that the member knows only by id (KIP-848)."""
        member = self.member
        if not member.unnamed:
            return
        names = self._cluster.metadata.topic_names
        known = {each: names[each] for each in member.unnamed if each in names}
        if known:
            self.run(TopicsNamed(known))
        elif not self._asking_names:
            self._asking_names = True
            self._start(self._ask_names(member))

    async def _ask_names(self, member: ConsumerMember) -> None:
        config = self._cluster.config
        pause = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        try:
            while member.unnamed and not member.is_closed:
                await self._ask_names_once(member)
                await asyncio.sleep(pause.next_s())
        finally:
            self._asking_names = False

    async def _ask_names_once(self, member: ConsumerMember) -> None:
        """Ask for the topics once, and keep their metadata fresh: they will be read."""
        topics = tuple(
            MetadataRequestTopic(topic_id=each, name=None) for each in sorted(member.unnamed)
        )
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            found = from_response(await self._cluster.send_any(request)).topic_names
            deadline = Deadline(self._cluster.config.request_timeout_ms)
            await self._cluster.ensure_topics(found.values(), deadline)
        except KohortError as error:
            log.debug("names of topics: %s", error)
        else:
            if found:
                self.run(TopicsNamed(found))

    # ----------------------------------------------------------------- assignors of its own

    def _coordinator_found(self) -> None:
        """Find out first whether a new coordinator asks members for assignments."""
        if not self.member.assignors:
            super()._coordinator_found()

    async def _asks_members(self) -> bool:
        if not self.member.assignors:
            return True
        return await self._coordinator.serves(ConsumerGroupPrepareAssignmentRequest)

    async def _done(self, job: MemberJob) -> Mapping[str, bytes]:
        """Return each member's assignment, or the metadata of the assignors.

        The coordinator has sent all the necessary data.
        """
        assignors = self.member.assignors
        if isinstance(job, SubscriptionJob):
            view, hook = ClusterView({}), "subscription_user_data"
        else:
            view, hook = ClusterView(job.partitions or {}), f"assignor {job.assignor}"
        return await run_in_thread(
            lambda: client_assignors.compute(job, assignors, view), f"{hook} of group {self._group}"
        )


def new_member_id() -> str:
    """Return a unique member id (KIP-1082)."""
    return str(uuid.uuid4())


def whole_name(pattern: str) -> str:
    """Return a pattern that matches whole names where `pattern` matches from their start.

    The broker requires a match of the whole name, this client's own patterns only of its start.
    Changing `group_protocol` must not change which topics a pattern matches.

    Args:
        pattern: A regular expression in RE2 syntax, which is Python's except for backtracking.
    """
    return pattern if _OPEN_END.fullmatch(pattern) else f"(?:{pattern}).*"
