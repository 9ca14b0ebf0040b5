"""An application: it polls, processes and commits; sometimes it stalls, raises or calls back.

It behaves like a user of `kohort.client.Consumer`: records count as consumed when the next poll
begins, consumed records are committed before the listener loses partitions, and a partition is not
read during a listener call about it. It polls when there is something to do, not on a tick.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    Polled,
    RejoinAsked,
    Subscribed,
    Unsubscribed,
)
from kohort.simulation.engine import Stream
from kohort.simulation.faults.members import BEATS, refuse, remedy
from kohort.simulation.groups import positions
from kohort.simulation.groups.base import BaseApplication, BaseClient
from kohort.simulation.groups.facts import Called, Committing, Delivered, Positioned
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.offsets import OffsetCommitResponse, OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable

Offsets = dict[TopicPartition, OffsetAndMetadata]
_RETRY_MS = 100
_COMMIT_PATIENCE_MS = 60_000


class Application(BaseApplication):
    """The application that uses a member."""

    def __init__(self, client: BaseClient) -> None:
        self.client = client
        self.believes: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int | None] = {}
        self.consumed: dict[TopicPartition, int] = {}
        self.stored: dict[TopicPartition, int] = {}
        self.paused: frozenset[TopicPartition] = frozenset()
        self.stalled_until = 0
        self.listener = ""
        self.slow_ms = 0
        self._names = frozenset(client.plan.topics)
        self._pattern = client.plan.pattern if client.protocol.has_epochs else ""
        self.callbacks: deque[Callback] = deque()
        self.calling: Callback | None = None
        self.closing = False
        self.closing_since: int | None = None
        self._errors: deque[KohortError] = deque()
        self._polls = False
        self._poll = 0
        self._poll_ends = 0
        self._woken = False
        self._fetching: set[TopicPartition] = set()
        self._lives: dict[TopicPartition, int] = {}
        self._commit_due = 0
        chance = Stream(client.world.scenario.seed, "processing", f"{client.name}#{client.life}")
        self._process_ms: Callable[[float], float] = chance.exponential

    # ------------------------------------------------------------------------------- polling

    def start(self) -> None:
        """Subscribe, and begin to poll."""
        self.client.tell(self._subscription())
        self.poll()

    @property
    def wants(self) -> bool:
        """Return whether it has a subscription, even to missing topics."""
        return bool(self._names or self._pattern)

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics that it subscribes to; for an expression, the present matches."""
        if self._pattern:
            return self.client.world.topics.matching(self._pattern)
        return self._names

    def _subscription(self) -> Subscribed:
        return Subscribed(frozenset() if self._pattern else self._names, self._pattern or None)

    def poll(self) -> None:
        """Call poll, after which earlier records count as consumed."""
        client = self.client
        engine = client.world.engine
        if self.stalled_until > engine.now:
            engine.at(self.stalled_until, client, self.poll)
            return
        if client.machine.is_closed:
            client.die(0)
            return
        self._polls = True
        for partition, position in self.positions.items():
            if position is not None:
                self.consumed[partition] = position
        client.ask(Polled())
        if client.plan.commit == "auto" and engine.now >= self._commit_due:
            self._commit_due = engine.now + client.plan.auto_commit_ms
            self._commit_news(None)
        self._poll += 1
        self._poll_ends = engine.now + client.plan.max_poll_interval_ms // 4
        engine.at(self._poll_ends, client, self._poll_is_over, self._poll)
        self._work()

    def _poll_is_over(self, poll: int) -> None:
        if poll == self._poll and self._polls and self.calling is None:
            self.poll()

    def news(self, callbacks: tuple[Callback, ...], raised: tuple[KohortError, ...]) -> None:
        """Note that the member has callbacks or errors for the application."""
        self.callbacks += callbacks
        self._errors += raised
        self.wake()

    def wake(self) -> None:
        """End a waiting poll if there is something to do."""
        if not self._woken and self._polls and self.calling is None:
            self._woken = True
            self.client.world.engine.after(0, self.client, self._awake)

    def _awake(self) -> None:
        self._woken = False
        self._work()

    def _work(self) -> None:
        """Do the next step of a poll."""
        client = self.client
        if not self._polls or self.calling is not None or not client.alive:
            return
        if self._errors and not self.callbacks:
            self._raised(self._errors.popleft())
        elif self.callbacks:
            self._serve(self.callbacks.popleft())
        elif client.machine.is_closed:
            client.die(0)
        elif not self.closing:
            self._find_positions()
            self._deliver()

    def _raised(self, error: KohortError) -> None:
        """Handle an error from poll; a fatal error ends the process."""
        client = self.client
        client.world.note("error raised")
        if client.machine.state.name in client.protocol.fatal:
            remedy(client, error)
            fenced = isinstance(error, KafkaError) and error.code in (
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            client.die(0 if fenced else 5_000)
        else:
            self.wake()

    # ------------------------------------------------------------------------------- the listener

    def _serve(self, callback: Callback) -> None:
        """Run a call that the member queued."""
        self.calling = callback
        change = self._change(callback)
        if change is Ownership.ASSIGNED:
            self.client.tell_assignor(callback)
            for partition in sorted(callback.partitions):
                self.positions[partition] = None
                self._lives[partition] = self._lives.get(partition, 0) + 1
            self._listen(change)
        elif change is Ownership.REVOKED and self.client.plan.commit == "auto":
            self._commit_news(callback.partitions, self._listen_after)
        else:
            self._listen(change)

    def _change(self, callback: Callback) -> Ownership:
        """Return the call to make, as the client does: a removed member has lost all partitions."""
        is_member = self.client.machine.generation_id >= 0
        if callback.change is Ownership.REVOKED and not is_member:
            return Ownership.LOST
        return callback.change

    def _listen_after(self, _stored: bool) -> None:
        if self.calling is not None:
            self._listen(self._change(self.calling))

    def _listen(self, change: Ownership) -> None:
        callback, client = self.calling, self.client
        assert callback is not None
        world = client.world
        self._say(change, callback.partitions, begins=True)
        if change is Ownership.ASSIGNED:
            self.believes |= callback.partitions
        self.listen(change, callback.partitions)
        if self.listener == "is refused" and change is Ownership.ASSIGNED:
            refuse(client, ErrorCode.GROUP_AUTHORIZATION_FAILED, *BEATS)
        elif self.listener == "commits":
            self._commit_news(None)
        elif self.listener == "rejoins":
            client.ask(RejoinAsked("the listener wants it"))
        takes_ms = self.takes_ms(change)
        if takes_ms:
            world.engine.after(takes_ms, client, self._told, change)
        else:
            self._told(change)

    def listen(self, change: Ownership, partitions: frozenset[TopicPartition]) -> None:
        """Run the listener; subclasses call a real one."""

    def takes_ms(self, _change: Ownership) -> int:
        """Return how long the listener takes."""
        return self.client.plan.listener_ms + self.slow_ms

    def let_go(self, partitions: frozenset[TopicPartition]) -> None:
        """Note that partitions belong to another member."""
        self.believes -= partitions
        self.paused -= partitions
        for partition in sorted(partitions):
            self.positions.pop(partition, None)
            self.consumed.pop(partition, None)

    def _told(self, change: Ownership) -> None:
        """Report that the listener has returned."""
        callback, client = self.calling, self.client
        if callback is None or not client.alive:
            return
        if change is not Ownership.ASSIGNED:
            self.let_go(callback.partitions)
        self._say(change, callback.partitions, begins=False)
        if change is not Ownership.ASSIGNED:
            for partition in sorted(callback.partitions):
                self.stored.pop(partition, None)
        self.calling = None
        error = "the listener raised" if self.listener == "raises" else None
        client.tell(CallbackDone(callback.token, error))
        if client.world.engine.now >= self._poll_ends:
            self.poll()
        else:
            self.wake()

    def _say(self, change: Ownership, partitions: frozenset[TopicPartition], begins: bool) -> None:
        world = self.client.world
        if world.tracing:
            verb = "begins" if begins else "ended"
            world.trace.call(world.engine.now, self.client.name, change, partitions, verb)
        if not begins or change is Ownership.ASSIGNED:
            world.owned(self.client, change, partitions, begins)
        if world.checking:
            world.check(Called(self.client, change, partitions, begins))

    # ------------------------------------------------------------------------------- positions

    def _find_positions(self) -> None:
        """Ask the coordinator for the committed offsets of new partitions."""
        if None not in self.positions.values():
            return
        client = self.client
        wanted = sorted(
            partition
            for partition in client.machine.fetchable
            if partition in self.positions
            and self.positions[partition] is None
            and partition not in self._fetching
        )
        if wanted:
            self._fetching.update(wanted)
            lives = {partition: self._lives[partition] for partition in wanted}
            client.request("group", positions.request(client, wanted), partial(self._found, lives))

    def _found(self, lives: dict[TopicPartition, int], response: Message | None) -> None:
        found = positions.found_in(cast("OffsetFetchResponse | None", response), list(lives))
        failed = False
        for partition, life in lives.items():
            self._fetching.discard(partition)
            current = self._lives.get(partition) == life and partition in self.positions
            if not current:
                continue
            if partition not in found:
                failed = True
                continue
            offset = found[partition]
            world = self.client.world
            if world.checking:
                world.check(Positioned(self.client, partition, offset))
            position = max(self.known_position(partition, offset), 0)
            self.positions[partition] = self.consumed[partition] = position
        if failed:
            self.client.world.engine.after(_RETRY_MS, self.client, self.wake)
        else:
            self.wake()

    def known_position(self, _partition: TopicPartition, offset: int) -> int:
        """Return where to begin, given the committed offset or -1."""
        return offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from an offset, and ignore a running look-up for the partition."""
        self.positions[partition] = self.consumed[partition] = offset
        self._lives[partition] = self._lives.get(partition, 0) + 1
        self._fetching.discard(partition)

    # ------------------------------------------------------------------------------- records

    def _deliver(self) -> None:
        """Hand out records if there are any, process them, then poll again."""
        client, left = self.client, self.client.plan.batch
        world = client.world
        delivered = False
        for partition in sorted(client.machine.fetchable):
            position = self.positions.get(partition)
            if position is None or not left or partition in self.paused:
                continue
            end = world.topics.end(partition)
            if position > end:
                self.positions[partition] = 0  # the topic was recreated: auto.offset.reset
                world.ledger.note_reset(partition)
                position = 0
            if position < end:
                until = min(end, position + left)
                left -= until - position
                self.positions[partition] = until
                delivered = True
                if world.tracing:
                    world.trace.records(world.engine.now, client.name, partition, position, until)
                if world.checking:
                    world.check(Delivered(client, partition, position, until))
        if delivered:
            self._polls = False
            takes_ms = 1 + int(self._process_ms(client.plan.process_ms))
            world.engine.after(takes_ms, client, self._processed)

    def _processed(self) -> None:
        """Finish the batch."""
        plan = self.client.plan
        if plan.commit == "auto":
            self.poll()
            return
        for partition, position in self.positions.items():
            if position is not None:
                self.consumed[partition] = position
        if plan.commit == "sync":
            self._commit_news(None, lambda _stored: self.poll())
        else:
            self._commit_news(None)
            self.poll()

    # ------------------------------------------------------------------------------- commits

    def _commit_news(
        self,
        partitions: frozenset[TopicPartition] | None,
        done: Callable[[bool], None] | None = None,
    ) -> None:
        """Commit consumed offsets whose commits were not confirmed yet.

        Args:
            partitions: Commit only these; None: all.
            done: Called with whether the offsets were stored; None: do not wait.
        """
        offsets = {
            partition: OffsetAndMetadata(offset)
            for partition, offset in sorted(self.consumed.items())
            if self.stored.get(partition) != offset
            and (partitions is None or partition in partitions)
        }
        tell = done if done is not None else _nobody
        if offsets:
            self.commit(offsets, tell, self.client.world.engine.now + _COMMIT_PATIENCE_MS)
        else:
            tell(True)

    def commit(self, offsets: Offsets, done: Callable[[bool], None], until: int) -> None:
        """Commit, and retry until a time; report whether the offsets were stored."""
        client = self.client
        try:
            request = client.machine.commit_request(offsets)
        except KohortError:
            done(False)
            return
        if client.world.checking:
            client.world.check(Committing(client, offsets))
        sent = client.machine.identity
        answered = partial(self._commit_answered, offsets, done, until, sent)
        client.request("group", request, answered)

    def _commit_answered(
        self,
        offsets: Offsets,
        done: Callable[[bool], None],
        until: int,
        sent: CommitIdentity,
        response: Message | None,
    ) -> None:
        client = self.client
        verdict = CommitVerdict.RETRY
        if response is not None:
            code = positions.error_of(cast("OffsetCommitResponse", response))
            verdict = client.machine.commit_verdict(sent, code)
            client.tell(CommitAnswered(sent, code))
        if verdict is CommitVerdict.DONE:
            for partition, position in offsets.items():
                if partition in self.consumed:
                    self.stored[partition] = position.offset
            done(True)
        elif verdict is CommitVerdict.RETRY and client.world.engine.now < until and done != _nobody:
            client.world.engine.after(_RETRY_MS, client, self._commit_again, offsets, done, until)
        else:
            client.world.note("commit failed")
            done(False)

    def _commit_again(self, offsets: Offsets, done: Callable[[bool], None], until: int) -> None:
        """Retry with the partitions still owned; the application may be closing by now."""
        own = {each: offset for each, offset in offsets.items() if each in self.believes}
        if own:
            self.commit(own, done, until)
        else:
            done(False)

    # ------------------------------------------------------------------------------- other calls

    def close(self) -> None:
        """Close the consumer: commit, then have the member leave."""
        self.closing = True
        self.closing_since = self.client.world.engine.now
        if self.client.plan.commit == "auto":
            self._commit_news(None, lambda _stored: self._closed())
        else:
            self._closed()

    def _closed(self) -> None:
        if self.client.alive:
            self._polls = True
            self.client.ask(Closing())
            self.wake()

    def stall(self, until: int) -> None:
        """Do not poll before a time, perhaps with records of the last poll unprocessed."""
        self.stalled_until = max(self.stalled_until, until)
        if self._polls and self.calling is None:
            self._polls = False
            self.client.world.engine.at(until, self.client, self.poll)

    def rejoin(self) -> None:
        """Ask for a rebalance."""
        self.client.ask(RejoinAsked("the application wants it"))

    def forget_topic(self, name: str) -> None:
        """Forget positions in a deleted topic."""
        for partition in sorted(self.positions):
            if partition.topic == name:
                self.positions[partition] = None
                self.consumed.pop(partition, None)
                self.stored.pop(partition, None)

    def unsubscribe(self) -> None:
        """Unsubscribe temporarily."""
        self._names, self._pattern = frozenset(), ""
        self.client.ask(Unsubscribed())

    def subscribe(self, topics: tuple[str, ...], pattern: str = "") -> None:
        """Subscribe to other topics, or to an expression if the protocol supports it."""
        client = self.client
        self._pattern = pattern if client.protocol.has_epochs else ""
        self._names = frozenset(topics)
        # The coordinator does not notice the changed subscription of a returning static member
        # (C31).
        client.world.change_plan(client.name, topics=tuple(sorted(topics)), pattern=self._pattern)
        client.ask(self._subscription())

    def subscribe_again(self) -> None:
        """Repeat the last subscription; a static member's new one would go unnoticed (C31)."""
        plan = self.client.world.plans[self.client.name]
        self.subscribe(plan.topics, plan.pattern)


def _nobody(_stored: bool) -> None:
    """Ignore the end of an asynchronous commit."""
