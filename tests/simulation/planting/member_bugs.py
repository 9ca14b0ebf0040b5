"""Bugs of the members: of both protocols, of assignors, and of applications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from kohort.group.assignors import Assignor, ClusterView, CooperativeStickyAssignor, RangeAssignor
from kohort.group.effects import Send
from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.classic import calls, join
from kohort.group.member.classic.session import ClassicMemberDecision, ClassicMemberState
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    RETRY_DUE,
    CallbackDone,
    CoordinatorLost,
    HeartbeatAnswered,
    HeartbeatDue,
    JobDone,
    RetryDue,
)
from kohort.group.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.simulation.coverage import AnyRow, AnyTable, substituted
from kohort.simulation.groups.application import Application
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.membership import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse
from tests.simulation.planting.bug import BUGS, Bug, bug, ignored, instead

if TYPE_CHECKING:
    from kohort.simulation.groups.client import Client

_T = CLASSIC_MEMBER
_COOP = "cooperative"


def _join_without_revoking(decision: ClassicMemberDecision, _answer: object) -> None:
    join.send_join(decision)


def _revoke_and_join(decision: ClassicMemberDecision, answer: object) -> None:
    join.rejoin(decision, "the group is rebalancing")
    if decision.state is ClassicMemberState.REVOKING:
        join.send_join(decision)
    del answer


def _lose_nothing(decision: ClassicMemberDecision, answer: HeartbeatAnswered) -> None:
    join.reset_identity(decision, answer)
    join.send_join(decision)


def _forget_id(decision: ClassicMemberDecision, _answer: object) -> None:
    join.send_join(decision)


def _spoil(decision: ClassicMemberDecision, done: JobDone, change: Any) -> None:
    assert done.assignments is not None
    read = {m: sorted(decode_assignment(data)[0]) for m, data in sorted(done.assignments.items())}
    change(read)
    spoilt = {member: encode_assignment(partitions) for member, partitions in read.items()}
    join.hand_over(decision, replace(done, assignments=spoilt))


def _give_twice(decision: ClassicMemberDecision, done: JobDone) -> None:
    def change(given: dict[str, list[TopicPartition]]) -> None:
        everything = [each for partitions in given.values() for each in partitions]
        for member, partitions in given.items():
            given[member] = sorted({*partitions, *everything[:1]})

    _spoil(decision, done, change)


def _omit_one(decision: ClassicMemberDecision, done: JobDone) -> None:
    def change(given: dict[str, list[TopicPartition]]) -> None:
        for member, partitions in given.items():
            given[member] = [each for each in partitions if each.partition != 0]

    _spoil(decision, done, change)


def _give_foreign(decision: ClassicMemberDecision, done: JobDone) -> None:
    def change(given: dict[str, list[TopicPartition]]) -> None:
        first = min(given)
        given[first] = [*given[first], TopicPartition("cancelled", 0)]

    _spoil(decision, done, change)


def _take_up_at_once(decision: ClassicMemberDecision, answer: SyncGroupResponse) -> None:
    join.take_assignment(decision, answer)
    session = decision.session
    if session.callback is not None and session.callback.change is Ownership.REVOKED:
        decision.callbacks.clear()
        decision.session = replace(session, callback=None)
        join.take_up(decision)


def _settle_without_rejoining(decision: ClassicMemberDecision, done: CallbackDone) -> None:
    decision.session = replace(decision.session, rejoin=None)
    calls.assigned(decision, done)


def _settle_and_rejoin(decision: ClassicMemberDecision, done: CallbackDone) -> None:
    calls.assigned(decision, done)
    if decision.state is ClassicMemberState.STABLE:
        join.rejoin(decision, "to be sure")


def _beat_no_more(decision: ClassicMemberDecision, _due: HeartbeatDue) -> None:
    decision.start(HEARTBEAT_DUE, 10 * decision.config.session_timeout_ms)


def _forget_moving_coordinator(decision: ClassicMemberDecision, _answer: object) -> None:
    """Stay with a former coordinator."""


def _never_retry(decision: ClassicMemberDecision, _event: object) -> None:
    decision.cancel(RETRY_DUE)


def _forget_lookup(decision: ClassicMemberDecision, _event: object) -> None:
    lookup.note_coordinator(decision)


class ZombieClaims(CooperativeStickyAssignor):
    """Lets the last member in order win a claim, whatever its generation, as kafka-python does."""

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Number the claims by the order of their members."""
        numbered = {
            member: replace(entry, generation=number)
            for number, (member, entry) in enumerate(sorted(subscriptions.items()))
        }
        return super().assign(cluster, numbered)


@contextmanager
def _claim_what_is_lost() -> Iterator[None]:
    """Let members claim, without a generation, their last assignment, even if it is lost.

    That is the other half of kafka-python's bug: its assignor keeps the last assignment, and does
    not learn that the member was removed.
    """
    given: dict[int, tuple[object, frozenset[TopicPartition]]] = {}

    def spoilt(line: AnyRow) -> AnyRow:
        handler = line.handler

        def both(decision: Any, event: Any) -> None:
            handler(decision, event)
            if decision.session.owned:
                given[id(decision.config)] = (decision.config, decision.session.owned)
            claimed = given.get(id(decision.config), (None, frozenset()))[1]
            decision.sends = [_claiming(send, claimed) for send in decision.sends]

        return replace(line, handler=both)

    table = cast("AnyTable", _T)
    with substituted(table, [spoilt(line) for line in table.rows]):
        yield


def _claiming(send: Send, claimed: frozenset[TopicPartition]) -> Send:
    request = send.request
    if not isinstance(request, JoinGroupRequest):
        return send
    protocols = tuple(
        replace(
            each,
            metadata=encode_subscription(
                replace(decode_subscription(each.metadata), owned=claimed, generation=-1)
            ),
        )
        for each in request.protocols
    )
    return replace(send, request=replace(request, protocols=protocols))


class OneRound(CooperativeStickyAssignor):
    """Moves partitions in one round, while their owners still have them (KIP-429)."""

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Assign as if no member owned anything."""
        return RangeAssignor().assign(cluster, subscriptions)


class Hoarder(RangeAssignor):
    """Gives everything to the first member, even topics that it does not subscribe to."""

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Give everything to one member."""
        everything = [
            TopicPartition(topic, number)
            for topic, count in sorted(cluster.partitions.items())
            for number in range(count)
        ]
        return {m: everything if m == min(subscriptions) else [] for m in subscriptions}


class CommitsAhead(Application):
    """Commits what it has not read yet."""

    def poll(self) -> None:
        """Count a little more as consumed than was read."""
        super().poll()
        for partition, offset in self.consumed.items():
            self.consumed[partition] = offset + 1


class StartsAtTheEnd(Application):
    """Begins at the end where the coordinator has an answer that it does not understand (U6)."""

    def known_position(self, partition: TopicPartition, offset: int) -> int:
        """Skip what is there."""
        return max(offset, self.client.world.topics.end(partition))


class KeepsPositions(Application):
    """Goes on at its old position in a partition that another member owned meanwhile."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._remembered: dict[TopicPartition, int] = {}

    def known_position(self, partition: TopicPartition, offset: int) -> int:
        """Trust its own memory."""
        return self._remembered.get(partition, offset)

    def poll(self) -> None:
        """Remember everything."""
        self._remembered.update(self.consumed)
        super().poll()


class ReadsOn(Application):
    """Ignores that partitions were taken away."""

    def let_go(self, partitions: frozenset[TopicPartition]) -> None:
        """Keep them."""


class CommitsForeign(Application):
    """Commits partitions that it has given up."""

    def let_go(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget the partitions, but not how far they were read."""
        kept = {each: self.consumed[each] for each in partitions if each in self.consumed}
        super().let_go(partitions)
        self.consumed.update({each: offset + 1 for each, offset in kept.items()})


class AcknowledgesFirst(Application):
    """Tells the member that partitions are given up before the listener has returned."""

    def takes_ms(self, change: Ownership) -> int:
        """Pretend that giving up takes no time, and keep the partitions for a while."""
        return 0 if change is not Ownership.ASSIGNED else super().takes_ms(change)

    def let_go(self, partitions: frozenset[TopicPartition]) -> None:
        """Let go later."""
        later = super().let_go
        self.client.world.engine.after(3_000, self.client, later, partitions)


_SHELL: tuple[tuple[str, str, type[Application]], ...] = (
    ("commit before delivery", "more is committed than read (B5: KAFKA-18641)", CommitsAhead),
    (
        "starts at the end",
        "it begins at the end (U6: platformatic #267)",
        StartsAtTheEnd,
    ),
    ("old position", "a position of an earlier ownership is used", KeepsPositions),
    ("reads on", "revoked partitions are kept (U6: platformatic #340)", ReadsOn),
    ("commits foreign", "partitions that were given up are committed", CommitsForeign),
)


def _shell(name: str, text: str, application: type[Application], protocol: str = "classic") -> None:
    BUGS.append(Bug(name=name, text=text, application=application, protocol=protocol))


def _assignor(name: str, text: str, spoilt: Assignor, protocol: str) -> None:
    assignors = {type(spoilt).name: spoilt}
    BUGS.append(Bug(name=name, text=text, assignors=assignors, protocol=protocol))


def _plant_part_1() -> None:
    beat = HeartbeatAnswered
    leads = (_T, JobDone, "hand_over")
    bug(
        "join before revoke",
        "an eager member joins and keeps what it owns",
        instead(_T, beat, "follow_rebalance", _join_without_revoking),
    )
    bug(
        "acknowledge before revoke",
        "an eager member joins while its application gives up",
        instead(_T, beat, "follow_rebalance", _revoke_and_join),
    )
    bug(
        "nothing is lost",
        "a member that was removed keeps what it owned",
        instead(_T, beat, "join_anew", _lose_nothing),
    )
    bug("deaf", "a member does not follow rebalances", ignored(_T, beat, "follow_rebalance"))
    bug(
        "id forgotten",
        "a member joins again without the id it was given (KIP-394)",
        instead(_T, JoinGroupResponse, "take_member_id", _forget_id),
    )
    bug(
        "mute",
        "no heartbeats are sent (U5: kafka-python #1418)",
        instead(_T, HeartbeatDue, "beat", _beat_no_more),
    )
    bug(
        "faithful to the old",
        "a member that joins does not look for a coordinator that moved",
        instead(_T, JoinGroupResponse, "find_and_join", _forget_moving_coordinator),
    )
    bug(
        "no second try",
        "a member does not try to join again",
        instead(_T, RetryDue, "retry", _never_retry),
    )
    bug(
        "lookup forgotten",
        "a member whose coordinator is lost believes that it is there",
        instead(_T, CoordinatorLost, "find_and_join", _forget_lookup),
    )
    bug("given twice", "a partition is given to all members", instead(*leads, _give_twice))


def _plant_part_2() -> None:
    leads = (_T, JobDone, "hand_over")
    bug("omitted", "no member gets the first partitions", instead(*leads, _omit_one))
    bug("foreign", "the leader assigns a topic without subscribers", instead(*leads, _give_foreign))
    bug(
        "take before give",
        "a cooperative member takes what is new before it gives up what moves",
        instead(_T, SyncGroupResponse, "take_assignment", _take_up_at_once),
        _COOP,
    )
    bug(
        "no second round",
        "a cooperative member gives up and does not join again",
        instead(_T, CallbackDone, "assigned", _settle_without_rejoining),
        _COOP,
    )
    BUGS.append(
        Bug(
            name="zombie claim",
            text="a removed member claims its old partitions, and wins over their owner",
            plant=_claim_what_is_lost,
            assignors={ZombieClaims.name: ZombieClaims()},
            protocol=_COOP,
        )
    )
    bug(
        "no last round",
        "a cooperative member joins again after each round (U3: never stabilises)",
        instead(_T, CallbackDone, "assigned", _settle_and_rejoin),
        _COOP,
    )
    bug(
        "locked up",
        "a member that gets UNKNOWN_MEMBER_ID stays as it is (U5: aiokafka #727)",
        ignored(_T, HeartbeatAnswered, "join_anew"),
    )
    _assignor("one round", "partitions move while their owner has them", OneRound(), _COOP)
    _assignor("hoarder", "one member gets all, wanted or not", Hoarder(), "classic")
    for protocol in ("classic", "consumer"):
        suffix = "" if protocol == "classic" else f" ({protocol})"
        for name, text, application in _SHELL:
            _shell(name + suffix, text, application, protocol)
    _shell(
        "acknowledged too early (consumer)",
        "partitions are acknowledged before the application has let them go",
        AcknowledgesFirst,
        "consumer",
    )


def plant_all() -> None:
    """Register the bugs of this file."""
    _plant_part_1()
    _plant_part_2()
