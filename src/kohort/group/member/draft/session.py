"""What a consumer of the draft protocol knows; values, and what one event does to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kohort.errors import KohortError
from kohort.group.effects import Callback, Effects, Send
from kohort.group.events import GroupEvent, MemberStateChanged, Ownership
from kohort.group.machine import Deadlines
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import MemberDeadline
from kohort.group.subscription import NO_GENERATION
from kohort.group.values import replace
from kohort.types import TopicPartition
from kohort.wire.schema import Message

# HeartbeatFrequency is an int16.
_MOST_HEARTBEATS = 32_767


class DraftMemberState(Enum):
    """The five states of the design, and three of an application that ends."""

    DOWN = "wants nothing"
    DISCOVER_COORDINATOR = "starts up: finds the coordinator and joins"
    PART_OF_GROUP = "has a consumer id and partitions, and reads them"
    REDISCOVER_COORDINATOR = "has lost the coordinator, reads on, and finds it again"
    STOPPED_CONSUMPTION = "gives its partitions up, then joins again"
    LEAVING = "gives its partitions up, then is down"
    CLOSED = "done"
    FATAL = "cannot go on until it is unsubscribed"


def heartbeat_frequency(config: MemberConfig) -> int:
    """Return how many heartbeats there are in one session timeout (D25)."""
    most = config.session_timeout_ms // max(config.heartbeat_interval_ms, 1)
    return min(max(most, 1), _MOST_HEARTBEATS)


def heartbeat_interval_ms(config: MemberConfig) -> int:
    """Return the time between two heartbeats (D25)."""
    return config.session_timeout_ms // heartbeat_frequency(config)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request on its way, and who the consumer was when it was sent."""

    token: int
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftMemberSession:
    """All that a consumer knows; a value.

    Attributes:
        state: Its state.
        topics: What the application subscribes to.
        joined_topics: What it said when it joined last.
        member_id: Its consumer id, empty when it has none.
        generation: Present generation, -1 when it has none.
        owned: Partitions it was given and has not given up.
        consuming: Whether the application was given partitions, be it none, and has them still.
        coordinator_known: Whether requests can be sent.
        looking_up: Whether the shell looks for the coordinator.
        request: The JoinGroup on its way.
        heartbeat: The heartbeat on its way.
        callback: The call into the application that has not returned.
        after_leaving: The state that follows `LEAVING`.
        polled_at: When the application polled last.
        failures: How many attempts to join or to find the coordinator failed in a row.
        next_token: The next number to give to a request or callback.
        deadlines: What is due when.
    """

    state: DraftMemberState = DraftMemberState.DOWN
    topics: frozenset[str] = frozenset()
    joined_topics: frozenset[str] = frozenset()
    member_id: str = ""
    generation: int = NO_GENERATION
    owned: frozenset[TopicPartition] = frozenset()
    consuming: bool = False
    coordinator_known: bool = False
    looking_up: bool = False
    request: Sent | None = None
    heartbeat: Sent | None = None
    callback: Callback | None = None
    after_leaving: DraftMemberState = DraftMemberState.CLOSED
    polled_at: int = 0
    failures: int = 0
    next_token: int = 1
    deadlines: Deadlines[MemberDeadline] = field(default_factory=Deadlines)

    @property
    def is_member(self) -> bool:
        """Whether the consumer belongs to a generation, as far as it knows."""
        return bool(self.member_id) and self.generation != NO_GENERATION


@dataclass(slots=True)
class MemberChange:
    """What one event does to a consumer, while its handlers run.

    Attributes:
        config: Settings.
        host: Where it runs, as it tells the coordinator.
        session: The consumer as it will be.
        now: Time of the event in milliseconds.
        sends: Requests to send.
        callbacks: Calls into the application.
        find_coordinator: Whether to look for the coordinator.
        raised: Errors for the application.
        observed: What happened.
    """

    config: MemberConfig
    host: str
    session: DraftMemberSession
    now: int
    sends: list[Send] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    find_coordinator: bool = False
    raised: list[KohortError] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)

    @property
    def state(self) -> DraftMemberState:
        """The consumer's state."""
        return self.session.state

    def enter(self, state: DraftMemberState, reason: str = "") -> None:
        """Change the state, and say so."""
        before = self.session.state
        self.session = replace(self.session, state=state)
        if before is not state:
            self.observed.append(
                MemberStateChanged(
                    group=self.config.group_id,
                    now=self.now,
                    member=self.session.member_id,
                    generation=self.session.generation,
                    before=before.name,
                    after=state.name,
                    reason=reason,
                )
            )

    def _token(self) -> int:
        token = self.session.next_token
        self.session = replace(self.session, next_token=token + 1)
        return token

    def send(self, request: Message, timeout_ms: int | None = None) -> Sent:
        """Send a request, and return what to remember of it."""
        sent = Sent(self._token(), self.session.member_id, self.session.generation)
        self.sends.append(Send(sent.token, request, timeout_ms))
        return sent

    def call(self, change: Ownership, partitions: frozenset[TopicPartition]) -> None:
        """Call the application; one call at a time."""
        assert self.session.callback is None
        callback = Callback(
            self._token(),
            change,
            partitions,
            generation=self.session.generation,
            assignment=partitions if change is Ownership.ASSIGNED else frozenset(),
        )
        self.session = replace(self.session, callback=callback)
        self.callbacks.append(callback)

    def start(self, deadline: MemberDeadline, delay_ms: int) -> None:
        """Let a deadline run from now."""
        deadlines = self.session.deadlines.set(deadline, self.now + delay_ms)
        self.session = replace(self.session, deadlines=deadlines)

    def runs(self, deadline: MemberDeadline) -> bool:
        """Whether a deadline runs."""
        return self.session.deadlines.get(deadline) is not None

    def cancel(self, *deadlines: MemberDeadline) -> None:
        """Stop deadlines, where they run."""
        left = self.session.deadlines
        for deadline in deadlines:
            left = left.cancel(deadline)
        self.session = replace(self.session, deadlines=left)

    def effects(self) -> Effects[DraftMemberSession]:
        """Return what the event leads to."""
        return Effects(
            self.session,
            observed=tuple(self.observed),
            sends=tuple(self.sends),
            callbacks=tuple(self.callbacks),
            find_coordinator=self.find_coordinator,
            raised=tuple(self.raised),
        )
