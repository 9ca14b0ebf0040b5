"""The session of a consumer of the draft protocol, and the decision that one event works on."""

from __future__ import annotations

from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.machine import State
from kohort.group.member.config import MemberConfig
from kohort.group.member.session import MemberDecision, Session
from kohort.group.subscription import NO_GENERATION
from kohort.types import TopicPartition
from kohort.values import replace

# HeartbeatFrequency is an int16.
_MAX_HEARTBEATS = 32_767


class DraftMemberState(State):
    """The five states of the design, and three for an application that stops."""

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
    frequency = config.session_timeout_ms // max(config.heartbeat_interval_ms, 1)
    return min(max(frequency, 1), _MAX_HEARTBEATS)


def heartbeat_interval_ms(config: MemberConfig) -> int:
    """Return the time between two heartbeats (D25)."""
    return config.session_timeout_ms // heartbeat_frequency(config)


class DraftMemberSession(Session, frozen=True, kw_only=True):
    """The whole state of a consumer; a value.

    Attributes:
        state: Its state.
        joined_topics: The topics of its last join.
        generation: Present generation, -1 when it has none.
        owned: Partitions that are assigned to it and that it has not given up.
        consuming: Whether the application has an assignment, possibly an empty one.
        after_leaving: The state that follows `LEAVING`.
        polled_at: When the application polled last.
    """

    state: DraftMemberState = DraftMemberState.DOWN
    joined_topics: frozenset[str] = frozenset()
    generation: int = NO_GENERATION
    owned: frozenset[TopicPartition] = frozenset()
    consuming: bool = False
    after_leaving: DraftMemberState = DraftMemberState.CLOSED
    polled_at: int = 0


class DraftMemberDecision(MemberDecision[DraftMemberSession], kw_only=True):
    """The effects of one event on a consumer, while its handlers run.

    Attributes:
        host: Its host, as it reports it to the coordinator.
    """

    host: str

    def call(self, change: Ownership, partitions: frozenset[TopicPartition]) -> None:
        """Queue a call into the application; only one runs at a time."""
        assert self.session.callback is None
        callback = Callback(
            self.token(),
            change,
            partitions,
            generation=self.session.generation,
            assignment=partitions if change is Ownership.ASSIGNED else frozenset(),
        )
        self.session = replace(self.session, callback=callback)
        self.callbacks.append(callback)
