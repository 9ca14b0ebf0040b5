"""Assignors that run in a member (KIP-848, K60, K61): the choice of assignor and member.

When a new epoch needs a target assignment, and all members know an assignor of their own, one of
them is asked for it in the answer to its heartbeat. It asks back for the group (prepare), computes,
and sends the result (install). No member waits for it: each continues with the old target.
Whatever goes wrong, the coordinator's own assignor makes the target instead. The two requests are
in `member_target`.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer import target
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.refused import Refused
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member
from kohort.group.coordinator.consumer.state.session import Computation
from kohort.group.coordinator.events import ConsumerAssignmentExpired
from kohort.group.events import AssignmentAsked, AssignorFellBack
from kohort.values import replace
from kohort.wire.messages.consumer_group import (
    ClientAssignor,
    ConsumerGroupHeartbeatRequest,
)

# The limit for one member's assignors; the config limits those of all members together.
_MOST_ASSIGNORS = 16
MOST_METADATA_BYTES = 64 * 1024
# Beyond this size, writing and reading the messages takes 100 ms and more, which others notice:
# heartbeats are answered in the same place.
_MOST_MEMBERS_AND_PARTITIONS = 250_000


def check(request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse invalid or too many assignors.

    Raises:
        Refused: INVALID_REQUEST.
    """
    assignors = request.client_assignors
    if not assignors:
        return
    names = {each.name for each in assignors}
    if len(assignors) > _MOST_ASSIGNORS or sum(map(_size, assignors)) > MOST_METADATA_BYTES:
        raise Refused(ErrorCode.INVALID_REQUEST, "ClientAssignors are too many or too large.")
    if len(names) < len(assignors) or any(not name.strip() for name in names):
        raise Refused(ErrorCode.INVALID_REQUEST, "ClientAssignors must have names, each once.")
    if any(not each.minimum_version <= each.version <= each.maximum_version for each in assignors):
        raise Refused(ErrorCode.INVALID_REQUEST, "A version of ClientAssignors is out of range.")


def _size(assignor: ClientAssignor) -> int:
    return len(assignor.name) + len(assignor.metadata)


# ------------------------------------------------------------------------------------ the choice


def chosen(decision: ConsumerDecision) -> str | None:
    """Return the assignor for members to run, None for the coordinator's own.

    All members must know it, and one of them must read the metadata of all. As in the classic
    protocol each member votes for the first such one of its list; equal votes: the first by name.
    """
    group = decision.existing
    total = len(group.members)
    known = [name for name, count in sorted(group.client_assignors.items()) if count == total]
    if not known or _is_too_large(decision):
        return None
    usable = {name for name in known if able(decision, name)}
    votes = dict.fromkeys(sorted(usable), 0)
    for member in group.members.values() if usable else ():
        votes[next(each.name for each in member.client_assignors if each.name in usable)] += 1
    return min(votes, key=lambda name: (-votes[name], name), default=None)


def able(decision: ConsumerDecision, name: str) -> frozenset[str]:
    """Return the members that may compute: their version range covers all, and none has failed."""
    group = decision.existing
    entries = {member_id: entry_of(member, name) for member_id, member in group.members.items()}
    versions = [entry.version for entry in entries.values()]
    lowest, highest = min(versions), max(versions)
    covering = (
        member_id
        for member_id, entry in entries.items()
        if entry.minimum_version <= lowest and highest <= entry.maximum_version
    )
    return frozenset(covering) - decision.session.unreliable.get(group.group_id, frozenset())


def entry_of(member: Member, name: str) -> ClientAssignor:
    """Return a member's entry for an assignor that it knows."""
    return next(each for each in member.client_assignors if each.name == name)


def _is_too_large(decision: ConsumerDecision) -> bool:
    group, topics = decision.existing, decision.topics.by_name
    size = len(group.members) + sum(topics[t].partitions for t in group.topics if t in topics)
    said = sum(_size(each) for m in group.members.values() for each in m.client_assignors)
    return size > _MOST_MEMBERS_AND_PARTITIONS or said > decision.config.group_max_bytes


# ------------------------------------------------------------------------------------- asking


def ask(decision: ConsumerDecision) -> bool:
    """Let a member compute the target for the group's epoch; False: the coordinator has to.

    The first capable member whose heartbeat is answered is asked: it is certainly alive.
    """
    assignor = chosen(decision)
    if assignor is None:
        return False
    _note(decision, Computation(decision.existing.epoch, assignor))
    return True


def should_compute(decision: ConsumerDecision, member: Member) -> bool:
    """Return whether the answer to this member's heartbeat asks it to compute.

    The answers repeat that until the result arrives, because one can be lost.
    """
    group = decision.existing
    run = decision.session.computing.get(group.group_id)
    if run is None or run.token or not member.client_assignors:
        return False
    if run.member_id in group.members:
        return run.member_id == member.member_id
    if member.member_id not in able(decision, run.assignor):
        return False
    _note(decision, replace(run, member_id=member.member_id, prepared=None), member)
    decision.observed.append(
        AssignmentAsked(
            group=group.group_id,
            now=decision.now,
            generation=group.epoch,
            member=member.member_id,
            assignor=run.assignor,
        )
    )
    return True


def reconsider(decision: ConsumerDecision) -> None:
    """Withdraw the request when a member joins that does not know the assignor.

    A member that has asked for the group may still answer for it as it was, unless it has left.
    """
    run = decision.session.computing.get(decision.group_id)
    if run is None or run.token or _is_known(decision.existing, run.assignor):
        return
    if run.prepared is None or run.member_id not in decision.existing.members:
        forget(decision)


def _is_known(group: ConsumerGroup, assignor: str) -> bool:
    return group.client_assignors.get(assignor, 0) == len(group.members)


def trust_again(decision: ConsumerDecision, member_id: str) -> None:
    """Allow a member that announces its assignors again to be asked again."""
    session, group_id = decision.session, decision.group_id
    failed = session.unreliable.get(group_id, frozenset()) - {member_id}
    if failed:
        decision.session = replace(session, unreliable=session.unreliable.set(group_id, failed))
    elif group_id in session.unreliable:
        decision.session = replace(session, unreliable=session.unreliable.delete(group_id))


def _note(decision: ConsumerDecision, run: Computation, member: Member | None = None) -> None:
    """Store the member that computes; its time runs from when it is asked."""
    timeout_ms = decision.config.group_consumer_client_assignment_timeout_ms
    if member is not None:
        timeout_ms = min(timeout_ms, max(member.rebalance_timeout_ms, 0))
    computing = decision.session.computing.set(decision.group_id, run)
    decision.session = replace(decision.session, computing=computing)
    decision.start(ConsumerAssignmentExpired(decision.group_id), timeout_ms)


def forget(decision: ConsumerDecision) -> None:
    """Stop asking any member."""
    computing = decision.session.computing.delete(decision.group_id)
    decision.session = replace(decision.session, computing=computing)
    decision.cancel(ConsumerAssignmentExpired(decision.group_id))


# ------------------------------------------------------------------------------------ falling back


def expire(decision: ConsumerDecision, _expired: ConsumerAssignmentExpired) -> None:
    """No result in time: the coordinator's assignor makes the target."""
    run = decision.session.computing.get(decision.group_id)
    if run is not None and not run.token:
        fall_back(decision, run, "no assignment in time")


def fall_back(
    decision: ConsumerDecision, run: Computation, reason: str, *, blamed: bool = True
) -> None:
    """Let the coordinator's assignor make the target, and do not ask that member again."""
    forget(decision)
    group = decision.group
    if group is None or not group.members:
        return
    if blamed and run.member_id is not None:
        _distrust(decision, group, run.member_id)
    decision.observed.append(
        AssignorFellBack(
            group=decision.group_id,
            now=decision.now,
            generation=group.epoch,
            member=run.member_id or "",
            assignor=run.assignor,
            reason=reason,
        )
    )
    target.begin(decision)


def _distrust(decision: ConsumerDecision, group: ConsumerGroup, member_id: str) -> None:
    unreliable = decision.session.unreliable
    failed = unreliable.get(decision.group_id, frozenset()) | {member_id}
    present = frozenset(each for each in failed if each in group.members)
    decision.session = replace(
        decision.session, unreliable=unreliable.set(decision.group_id, present)
    )
