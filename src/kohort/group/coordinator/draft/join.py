"""JoinGroup (D7-D11), Heartbeat and OffsetCommit (D2, D4, D6)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator import services
from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.group import STORED, Consumer, Newcomer
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.session import Parked
from kohort.group.events import Cause
from kohort.values import replace
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
)

Join: TypeAlias = RequestArrived[DraftJoinGroupRequest]
Heartbeat: TypeAlias = RequestArrived[DraftHeartbeatRequest]

_LONGEST_HOST = 255  # the maximum length of a DNS name
# The maximum length of a string on the wire, minus two hyphens and the sequence.
_LONGEST_ID = 32_767 - 12


def _parked(join: Join) -> Parked:
    return Parked(join.token, join.version)


# -------------------------------------------------------------------------------- JoinGroup refused


def session_timeout_error(decision: DraftDecision, join: Join) -> ErrorCode | None:
    """D12: return the error for a session timeout outside the broker's limits."""
    config = decision.config
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    allowed = shortest <= join.request.session_timeout_ms <= longest
    return None if allowed else ErrorCode.INVALID_SESSION_TIMEOUT


def form_error(_decision: DraftDecision, join: Join) -> ErrorCode | None:
    """Return the error for a join with an invalid host or heartbeat frequency."""
    request = join.request
    host = request.consumer_host
    length = len(request.group_id.encode()) + len(host.encode())
    malformed = request.heartbeat_frequency < 1 or len(host) > _LONGEST_HOST or length > _LONGEST_ID
    return ErrorCode.INVALID_REQUEST if malformed else None


def identity_error(decision: DraftDecision, join: Join) -> ErrorCode | None:
    """D3, D11: return the error for an id that is not in the group; others are not affected.

    The sender may join again as a new consumer.
    """
    consumer_id = join.request.consumer_id
    known = not consumer_id or consumer_id in decision.group.consumers
    return None if known else ErrorCode.UNKNOWN_MEMBER_ID


def room_error(decision: DraftDecision, join: Join) -> ErrorCode | None:
    """Return the error for a full group (KIP-389, which the design does not have)."""
    group = decision.group
    new = not join.request.consumer_id
    full = len(group.consumers) + len(group.newcomers) >= decision.config.group_max_size
    return ErrorCode.GROUP_MAX_SIZE_REACHED if new and full else None


# ------------------------------------------------------------------------------------ new consumers


def is_new(_decision: DraftDecision, join: Join) -> bool:
    """D10: a consumer without an id counts as newly started."""
    return not join.request.consumer_id


def wait_for_id(decision: DraftDecision, join: Join) -> None:
    """D9: park a new consumer's join; it gets its id when all others have joined.

    If they have joined already, it joins the next generation, which follows at once.
    """
    newcomer = Newcomer(_consumer(join), _parked(join))
    decision.group = replace(decision.group, newcomers=(*decision.group.newcomers, newcomer))


def call_everybody(decision: DraftDecision, join: Join) -> None:
    """D10: rebalance for a new consumer."""
    wait_for_id(decision, join)
    rebalance.prepare(decision, Cause.MEMBER_JOINED)


def _consumer(join: Join) -> Consumer:
    request = join.request
    return Consumer(
        consumer_id=request.consumer_id,
        client_id=join.client_id,
        host=request.consumer_host,
        session_timeout_ms=request.session_timeout_ms,
        heartbeat_frequency=request.heartbeat_frequency,
        topics=tuple(sorted(set(request.topics))),
    )


# ---------------------------------------------------------------------------------- known consumers


def wants_the_same(decision: DraftDecision, join: Join) -> bool:
    """Return whether the consumer asks for the same topics as before."""
    before = decision.group.consumers[join.request.consumer_id]
    return before.topics == _consumer(join).topics


def tell_again(decision: DraftDecision, join: Join) -> None:
    """D8: repeat the answer, which may have been lost: the join is unchanged."""
    consumer = _consumer(join)
    decision.group = decision.group.with_consumer(consumer)
    rebalance.restart_session(decision, consumer)
    owned = STORED.of(decision.log)[decision.group.group_id].owned
    consumer_id = consumer.consumer_id
    rebalance.tell(decision, _parked(join), consumer_id, owned.get(consumer_id, ()))


def join_with_other_topics(decision: DraftDecision, join: Join) -> None:
    """Rebalance, because a consumer's topics have changed."""
    _park(decision, join)
    rebalance.prepare(decision, Cause.SUBSCRIPTION_CHANGED, join.request.consumer_id)


def join_again(decision: DraftDecision, join: Join) -> None:
    """D4: park a consumer's join, and continue the rebalance if it is the last."""
    _park(decision, join)
    rebalance.go_on_if_all_joined(decision)


def ask_again(decision: DraftDecision, join: Join) -> None:
    """Park a repeated join, which gets the answer in place of the first one."""
    _park(decision, join)


def change_its_mind(decision: DraftDecision, join: Join) -> None:
    """Park a join whose topics differ from those being assigned."""
    _park(decision, join)
    rebalance.start_job(decision)


def _park(decision: DraftDecision, join: Join) -> None:
    """Update the consumer from the join, which replaces an earlier parked one."""
    consumer = _consumer(join)
    earlier = decision.group.joining.get(consumer.consumer_id)
    if earlier is not None:
        code = ErrorCode.REBALANCE_IN_PROGRESS
        rebalance.refuse(decision, earlier, code, consumer.consumer_id)
    decision.group = decision.group.with_consumer(consumer).park(
        consumer.consumer_id, _parked(join)
    )
    rebalance.restart_session(decision, consumer)


# -------------------------------------------------------------------------- Heartbeat, OffsetCommit


def sender_error(decision: DraftDecision, heartbeat: Heartbeat) -> ErrorCode | None:
    """D3, D7: return the error for a sender that is not a consumer of this group."""
    known = heartbeat.request.consumer_id in decision.group.consumers
    return None if known else ErrorCode.UNKNOWN_MEMBER_ID


def has_missed_rebalance(decision: DraftDecision, heartbeat: Heartbeat) -> bool:
    """D6: return whether the sender is in another generation."""
    return heartbeat.request.group_generation_id != decision.group.generation


def call_back(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    """D4: note that the consumer is alive, and ask it to rejoin."""
    _keep_alive(decision, heartbeat)
    _answer(decision, heartbeat, ErrorCode.ILLEGAL_GENERATION)


def accept(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    """D2, D6, D12: accept the request, and restart the consumer's session."""
    _keep_alive(decision, heartbeat)
    _answer(decision, heartbeat, ErrorCode.NONE)


def _keep_alive(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    rebalance.restart_session(decision, decision.group.consumers[heartbeat.request.consumer_id])


def _answer(decision: DraftDecision, heartbeat: Heartbeat, code: ErrorCode) -> None:
    response = DraftHeartbeatResponse(error_code=code)
    decision.reply(heartbeat.token, response, heartbeat.version)


def store_and_stay(decision: DraftDecision, commit: services.Commit) -> None:
    """D6: store positions, and restart the consumer's session."""
    rebalance.restart_session(decision, decision.group.consumers[commit.request.member_id])
    services.store(decision, commit)
